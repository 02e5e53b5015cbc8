#include "src/model/source.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/support/seed.h"

namespace whet {
namespace {

using Files = std::map<std::string, std::string>;

TEST(ExpandIncludesTest, PlacesEachFileOnceBetweenLineMarkers) {
  const Files files = {
      {"op/cpu.cc", "#include \"common/a.h\"\n#include <immintrin.h>\n#include \"b.h\"\nint x;\n"},
      {"op/b.h", "#pragma once\n#include \"common/a.h\"\nint b;\n"},
      {"common/a.h", "#pragma once\nint a;\n"},
  };
  const absl::StatusOr<std::string> unit = ExpandIncludes(files, "op/cpu.cc");
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_EQ(*unit,
            "#line 1 \"op/cpu.cc\"\n"
            "#line 1 \"common/a.h\"\n"
            "\n"
            "int a;\n"
            "#line 2 \"op/cpu.cc\"\n"
            "#include <immintrin.h>\n"
            "#line 1 \"op/b.h\"\n"
            "\n"
            "\n"
            "int b;\n"
            "#line 4 \"op/cpu.cc\"\n"
            "int x;\n");
}

// Every line that survives must be where the markers say it is.
TEST(ExpandIncludesTest, MarkersNameTheRightLine) {
  const Files files = {
      {"op/k.cc", "\nL2\n#include \"a.h\"\nL4\n#include \"b.h\"\n#include \"a.h\"\nL7"},
      {"op/a.h", "#pragma once\nA2\n#include \"b.h\"\nA4\n"},
      {"op/b.h", "B1\r\n\r\nB3\r\n"},
  };
  const absl::StatusOr<std::string> unit = ExpandIncludes(files, "op/k.cc");
  ASSERT_TRUE(unit.ok()) << unit.status();
  std::map<std::string, std::string> places;
  std::string file;
  int line = 0;
  std::string text = *unit;
  while (!text.empty()) {
    const std::string one = text.substr(0, text.find('\n'));
    text.erase(0, one.size() + 1);
    if (one.rfind("#line ", 0) == 0) {
      line = std::stoi(one.substr(6));
      file = one.substr(one.find('"') + 1);
      file.pop_back();
      continue;
    }
    if (!one.empty()) places[one] = file + ":" + std::to_string(line);
    ++line;
  }
  const std::map<std::string, std::string> expected = {
      {"L2", "op/k.cc:2"}, {"L4", "op/k.cc:4"}, {"L7", "op/k.cc:7"}, {"A2", "op/a.h:2"},
      {"A4", "op/a.h:4"},  {"B1", "op/b.h:1"},  {"B3", "op/b.h:3"}};
  EXPECT_EQ(places, expected);
}

TEST(ExpandIncludesTest, LooksFromTheRootFirst) {
  const Files files = {{"op/k.cc", "#include \"x/a.h\"\n#include \"../common/c.h\"\n"},
                       {"op/x/a.h", "wrong\n"},
                       {"x/a.h", "#include \"b.h\"\n"},
                       {"x/b.h", "right\n"},
                       {"common/c.h", "common\n"}};
  const absl::StatusOr<std::string> unit = ExpandIncludes(files, "op/k.cc");
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_NE(unit->find("right"), std::string::npos);
  EXPECT_NE(unit->find("common\n"), std::string::npos);
  EXPECT_EQ(unit->find("wrong"), std::string::npos);
}

TEST(ExpandIncludesTest, WhatIsNoDirectiveStays) {
  const std::string text =
      "// #include \"missing.h\"\n"
      "/* begin\n"
      "#include \"missing.h\"\n"
      "end */ int a = 1'000;\n"
      "const char* s = \"/*\";\n"
      "const char c = '\"';\n"
      "#define S \"#include\"\n"
      "#pragma unroll\n"
      "#if 0\n"
      "#endif\n";
  const absl::StatusOr<std::string> unit = ExpandIncludes({{"op/k.cc", text}}, "op/k.cc");
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_EQ(*unit, "#line 1 \"op/k.cc\"\n" + text);
}

TEST(ExpandIncludesTest, AnIncludeAfterCommentsAndStringsIsStillSeen) {
  const std::string text =
      "const char* s = \"/*\";  // it's /* nothing\n"
      "int a = 1'000; /* closed */\n"
      "  #  include \"op/a.h\"  // with a comment\n";
  const absl::StatusOr<std::string> unit =
      ExpandIncludes({{"op/k.cc", text}, {"op/a.h", "placed\n"}}, "op/k.cc");
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_NE(unit->find("\nplaced\n"), std::string::npos) << *unit;
}

// Lines without a '#' take a shorter way in a text that holds no block comment; it leads to the same.
TEST(ExpandIncludesTest, ABlockCommentAtTheEndChangesNothingBeforeIt) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedText(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> lines = {"",
                                          "int a;",
                                          "// not #1",
                                          "#include \"a.h\"",
                                          "  # include \"op/b.h\"  // twice",
                                          "#include <math.h>",
                                          "#pragma once",
                                          "#define X \\",
                                          "a # b"};
  const auto text = [&] {
    std::string out;
    for (uint32_t n = random() % 8; n > 0; --n) out += lines[random() % lines.size()] + "\n";
    return out;
  };
  for (int i = 0; i < 300; ++i) {
    Files files = {{"op/k.cc", text()}, {"op/a.h", "in a\n" + text()}, {"op/b.h", "in b\n"}};
    const absl::StatusOr<std::string> shorter = ExpandIncludes(files, "op/k.cc");
    for (auto& [path, file] : files) file += "/* */";
    const absl::StatusOr<std::string> longer = ExpandIncludes(files, "op/k.cc");
    ASSERT_EQ(shorter.ok(), longer.ok()) << files.at("op/k.cc");
    if (!shorter.ok()) {
      EXPECT_EQ(shorter.status(), longer.status());
      continue;
    }
    EXPECT_EQ(absl::StrReplaceAll(*longer, {{"/* */\n", ""}}),
              files.at("op/k.cc") == "/* */" ? "#line 1 \"op/k.cc\"\n" : *shorter);
  }
}

struct Fault {
  Files files;
  std::string message;
};

TEST(ExpandIncludesTest, NamesIncluderAndLineOfAFault) {
  const std::vector<Fault> cases = {
      {{}, "op/k.cc: it is not among the template's files"},
      {{{"op/k.cc", "\n#include \"no.h\"\n"}}, "op/k.cc:2: \"no.h\" is not among"},
      {{{"op/k.cc", "#include \"a.h\"\n"}, {"op/a.h", "\n\n#include \"no.h\"\n"}},
       "op/a.h:3: \"no.h\" is not among"},
      {{{"op/k.cc", "#include \"/etc/passwd\"\n"}}, "op/k.cc:1: \"/etc/passwd\" is not among"},
      {{{"op/k.cc", "#include \"../../x.h\"\n"}, {"x.h", ""}}, "op/k.cc:1: \"../../x.h\" is not"},
      {{{"op/k.cc", "#include \"k.cc\"\n"}}, "includes itself (op/k.cc > op/k.cc)"},
      {{{"op/k.cc", "#include \"a.h\"\n"},
        {"op/a.h", "#include \"b.h\"\n"},
        {"op/b.h", "\n#include \"a.h\"\n"}},
       "op/b.h:2: \"op/a.h\" includes itself (op/k.cc > op/a.h > op/b.h > op/a.h)"},
      {{{"op/k.cc", "#include HEADER\n"}}, "op/k.cc:1: an include must be written out"},
      {{{"op/k.cc", "#include_next \"a.h\"\n"}}, "op/k.cc:1: an include must be written out"},
      {{{"op/k.cc", "#include \"a.h\" int x;\n"}}, "op/k.cc:1: an include must be written out"},
  };
  for (const Fault& c : cases) {
    const absl::Status status = ExpandIncludes(c.files, "op/k.cc").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
  }
}

TEST(NormalizePathTest, StaysInsideTheRoot) {
  EXPECT_EQ(NormalizePath("a/./b/../c.h"), "a/c.h");
  EXPECT_EQ(NormalizePath("a//b"), "a/b");
  EXPECT_EQ(NormalizePath("../a"), "");
  EXPECT_EQ(NormalizePath("a/../../b"), "");
  EXPECT_EQ(NormalizePath("/a"), "");
}

}  // namespace
}  // namespace whet
