// The texts that people and caches use for variants and problems.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/model/problem.h"
#include "src/model/variant.h"

namespace whet {
namespace {

TEST(VariantTest, TextGoesThereAndBack) {
  for (const char* id : {"cpu", "cpu:block_kv=64,block_q=32", "sm90:lazy_log2=-1", "a:x=0"}) {
    const absl::StatusOr<Variant> variant = Variant::Parse(id);
    ASSERT_TRUE(variant.ok()) << variant.status();
    EXPECT_EQ(variant->id(), id);
  }
  const Variant variant = *Variant::Parse("cpu:b=64,a=-2");
  EXPECT_EQ(variant.kernel, "cpu");
  const std::vector<std::pair<std::string, int64_t>> parameters = {{"b", 64}, {"a", -2}};
  EXPECT_EQ(variant.parameters, parameters);
}

struct Refused {
  std::string text;
  std::string message;
};

TEST(VariantTest, RefusesOtherSpellings) {
  const std::vector<Refused> cases = {
      {"", "no kernel name"},
      {":a=1", "no kernel name"},
      {"Cpu", "no kernel name"},
      {"cpu:", "\"\" is not name=integer"},
      {"cpu:a", "\"a\" is not name=integer"},
      {"cpu:a=", "\"a=\" is not name=integer"},
      {"cpu:a=x", "\"a=x\" is not name=integer"},
      {"cpu:a=1,", "\"\" is not name=integer"},
      {"cpu:A=1", "\"A=1\" is not name=integer"},
      {"cpu:a=9223372036854775808", "is not name=integer"},
      {"cpu:a=1,a=2", "a is given twice"},
      {"cpu:a=01", "its canonical text is cpu:a=1"},
      {"cpu:a=+1", "its canonical text is cpu:a=1"},
      {"cpu:a= 1", "its canonical text is cpu:a=1"},
      {"cpu:a=-0", "its canonical text is cpu:a=0"},
  };
  for (const Refused& c : cases) {
    const absl::Status status = Variant::Parse(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
  }
}

struct FieldText {
  std::string text;
  std::string operation;
  FieldValues fields;
};

TEST(ParseFieldTextTest, SplitsAndRecognisesIntegers) {
  const std::vector<FieldText> cases = {
      {"", "", {}},
      {"op:", "op", {}},
      {"op:a=1", "op", {{"a", int64_t{1}}}},
      {"a=1,b=x", "", {{"a", int64_t{1}}, {"b", Value("x")}}},
      {" op : a=-1 , b=x ", "op", {{"a", int64_t{-1}}, {"b", Value("x")}}},
      {"a=007,b=+7,c=", "", {{"a", Value("007")}, {"b", Value("+7")}, {"c", Value("")}}},
      {"a=x:y", "", {{"a", Value("x:y")}}},
      {"op:a=x=y", "op", {{"a", Value("x=y")}}},
      {"a=9223372036854775808", "", {{"a", Value("9223372036854775808")}}},
  };
  for (const FieldText& c : cases) {
    std::string operation = "left over";
    const absl::StatusOr<FieldValues> fields = ParseFieldText(c.text, &operation);
    ASSERT_TRUE(fields.ok()) << fields.status();
    EXPECT_EQ(operation, c.operation) << c.text;
    EXPECT_EQ(*fields, c.fields) << c.text;
  }
}

TEST(ParseFieldTextTest, NamesThePieceThatIsNone) {
  for (const Refused& c : std::vector<Refused>{{"op:a=1,b", "\"b\" is not name=value"},
                                               {"nonsense", "\"nonsense\" is not name=value"},
                                               {"a=1,,b=2", "\"\" is not name=value"},
                                               {"=1", "\"=1\" is not name=value"}}) {
    std::string operation;
    const absl::Status status = ParseFieldText(c.text, &operation).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace whet
