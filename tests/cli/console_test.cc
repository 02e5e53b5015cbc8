#include "src/cli/console.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/time/time.h"

namespace whet {
namespace {

// A FILE whose bytes can be looked at.
class Captured {
 public:
  Captured() : file_(open_memstream(&bytes_, &size_)) {}
  ~Captured() {
    std::fclose(file_);
    std::free(bytes_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(bytes_, size_);
  }

 private:
  char* bytes_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

TEST(ConsoleTest, ErrorsAreOneLineWhateverTheyHold) {
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {});
  console.Error("first\n  second\r\n\x1b[31mthird\n");
  EXPECT_EQ(err.text(), "whet: error: first second [31mthird\n");
  EXPECT_EQ(out.text(), "");
}

TEST(ConsoleTest, JsonStandsAlone) {
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {.json = true});
  console.Line("for people");
  console.Row("a", "b");
  console.Json("{}");
  console.Json("{\"error\": 1}");
  EXPECT_EQ(out.text(), "{}\n");
  EXPECT_FALSE(console.Progress()) << "no terminal, so nobody watches";
}

TEST(ConsoleTest, TextIgnoresJson) {
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {});
  console.Row("winner", "x");
  console.Json("{}");
  EXPECT_EQ(out.text(), "winner        x\n");
}

TEST(ConsoleTest, PlainProgressIsALinePerStageAndOneEveryFiveSeconds) {
  ManualClock clock(absl::UnixEpoch());
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {.clock = &clock});
  const ProgressSink progress = console.Progress();
  progress("p", "compile", 0, 3);
  progress("p", "compile", 1, 3);
  clock.Advance(absl::Seconds(6));
  progress("p", "compile", 2, 3);
  progress("p", "compile", 3, 3);
  progress("p", "screen", 1, 2);
  progress("p", "screen", 2, 2);
  progress("p", "screen", 2, 2);
  progress("p", "compile", 3, 3);
  EXPECT_EQ(err.text(),
            "whet: compiling 0 of 3\n"
            "whet: compiling 2 of 3, after 6.0 s\n"
            "whet: compiling 3 of 3, after 6.0 s\n"
            "whet: screening 1 of 2, after 6.0 s\n"
            "whet: screening 2 of 2, after 6.0 s\n");
  EXPECT_EQ(out.text(), "");
}

TEST(ConsoleTest, TerminalProgressIsRewrittenAndTakenAway) {
  ManualClock clock(absl::UnixEpoch());
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {.terminal = true, .clock = &clock});
  const ProgressSink progress = console.Progress();
  progress("p", "compile", 0, 4);
  progress("p", "compile", 1, 4);  // too soon after the last
  clock.Advance(absl::Milliseconds(60));
  progress("p", "compile", 2, 4);
  console.Line("result");
  EXPECT_EQ(err.text(),
            "\rcompiling            [........................] 0 of 4  0.0 s\x1b[K"
            "\rcompiling            [############............] 2 of 4  0.1 s\x1b[K"
            "\r\x1b[K");
  EXPECT_EQ(out.text(), "result\n");
}

TEST(ConsoleTest, QuietHasNoProgress) {
  Captured out;
  Captured err;
  Console console(out.file(), err.file(), {.quiet = true, .terminal = true});
  EXPECT_FALSE(console.Progress());
}

TEST(ConsoleTest, AFullDiskIsNoticed) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Captured err;
  {
    Console console(full, err.file(), {});
    console.Line("lost");
    EXPECT_FALSE(console.Flush());
  }
  std::fclose(full);
}

}  // namespace
}  // namespace whet
