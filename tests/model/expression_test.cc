#include "src/model/expression.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

Scope TestScope() {
  Scope scope;
  scope.Set("a", int64_t{7});
  scope.Set("b", int64_t{-3});
  scope.Set("zero", int64_t{0});
  scope.Set("dtype", std::string("bf16"));
  scope.SetFeatures({"avx512bf16"});
  return scope;
}

struct Good {
  std::string text;
  int64_t value;
};

TEST(ExpressionTest, Evaluates) {
  const std::vector<Good> cases = {
      {"1", 1},
      {" ( 1 ) ", 1},
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"10 - 4 - 3", 3},
      {"100 / 10 / 5", 2},
      {"-7 / 2", -3},
      {"-7 % 2", -1},
      {"a % b", 1},
      {"2 - -3", 5},
      {"--a", 7},
      {"!zero", 1},
      {"!!a", 1},
      {"!a == 0", 1},
      {"1 < 2 == 1", 1},
      {"3 > 2 && 2 >= 2 && 1 <= 2 && 1 != 2", 1},
      {"0 || 5", 1},
      {"1 && 5", 1},
      {"1 || 0 && 0", 1},
      {"a ? 10 : 20", 10},
      {"zero ? 10 : a ? 30 : 40", 30},
      {"(zero ? 1 : 2) + 1", 3},
      {"min(a, b) * max(a, b)", -21},
      {"ceil_div(7, 2)", 4},
      {"ceil_div(-7, 2)", -3},
      {"ceil_div(8, 2)", 4},
      {"round_up(7, 4)", 8},
      {"round_up(-7, 4)", -4},
      {"round_up(8, 4)", 8},
      {"next_pow2(5)", 8},
      {"next_pow2(8)", 8},
      {"next_pow2(0)", 1},
      {"next_pow2(-9)", 1},
      {"dtype == \"bf16\"", 1},
      {"dtype != \"bf16\"", 0},
      {"dtype == (a ? \"bf16\" : \"f32\")", 1},
      {"has(\"avx512bf16\") + has( \"amx-tile\" )", 1},
      {"9223372036854775807", std::numeric_limits<int64_t>::max()},
      {"-9223372036854775808", std::numeric_limits<int64_t>::min()},
      {"- 5", -5},
      {"-9223372036854775808 % -1", 0},
      // What is not needed is not evaluated.
      {"zero && 1 / zero", 0},
      {"a || 1 / zero", 1},
      {"a ? 1 : 1 / zero", 1},
      {"zero ? unknown : 2", 2},
  };
  const Scope scope = TestScope();
  for (const Good& c : cases) {
    const absl::StatusOr<Expression> expression = Expression::Parse(c.text);
    ASSERT_TRUE(expression.ok()) << expression.status();
    EXPECT_EQ(expression->text(), c.text);
    const absl::StatusOr<int64_t> value = expression->EvaluateInteger(scope);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, c.value) << c.text;
  }
}

struct Bad {
  std::string text;
  std::string message;
};

void ExpectRefusal(const absl::Status& status, const Bad& c) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
  EXPECT_NE(status.message().find(c.message), absl::string_view::npos) << c.text << ": " << status;
  EXPECT_NE(status.message().find(c.text), absl::string_view::npos) << status;
}

TEST(ExpressionTest, RefusesToParse) {
  const std::vector<Bad> cases = {
      {"", "expected a value at position 1"},
      {"a +", "expected a value at position 4"},
      {"a b", "expected an operator or the end at position 3"},
      {"(a", "expected \")\" at position 3"},
      {"a)", "expected an operator or the end at position 2"},
      {"a = b", "expected an operator or the end at position 3"},
      {"a & b", "expected an operator or the end at position 3"},
      {"a ? b", "expected \":\" at position 6"},
      {"min(a)", "expected \",\" at position 6"},
      {"min(a, b, 1)", "expected \")\" at position 9"},
      {"next_pow2()", "expected a value at position 11"},
      {"sqrt(4)", "unknown function \"sqrt\" at position 1"},
      {"has(a)", "expected a feature in double quotes at position 5"},
      {"\"abc", "text without an end at position 1"},
      {"12ab", "expected a digit or an operator at position 3"},
      {"1.5", "expected an operator or the end at position 2"},
      {"9223372036854775808", "a number beyond 64 bits at position 1"},
      {"-9223372036854775809", "a number beyond 64 bits at position 1"},
      {"$", "expected a value at position 1"},
  };
  for (const Bad& c : cases) ExpectRefusal(Expression::Parse(c.text).status(), c);
}

TEST(ExpressionTest, RefusesToEvaluate) {
  const std::vector<Bad> cases = {
      {"1 + unknown", "unknown name \"unknown\" at position 5"},
      {"a / zero", "division by zero at position 3"},
      {"a % zero", "division by zero at position 3"},
      {"9223372036854775807 + 1", "overflow of 64-bit integers at position 21"},
      {"-9223372036854775808 - 1", "overflow"},
      {"4611686018427387904 * 2", "overflow"},
      {"-9223372036854775808 / -1", "overflow"},
      {"-(-9223372036854775808)", "overflow"},
      {"next_pow2(4611686018427387905)", "overflow"},
      {"round_up(9223372036854775807, 2)", "overflow"},
      {"ceil_div(a, zero)", "ceil_div needs a positive divisor at position 1"},
      {"ceil_div(a, b)", "ceil_div needs a positive divisor"},
      {"round_up(a, b)", "round_up needs a positive step"},
      {"dtype + 1", "text \"bf16\" where an integer is needed at position 1"},
      {"dtype < \"f32\"", "where an integer is needed"},
      {"dtype == 1", "text and an integer cannot be compared at position 7"},
      {"!dtype", "where an integer is needed"},
      {"dtype", "where an integer is needed"},
  };
  const Scope scope = TestScope();
  for (const Bad& c : cases) {
    const absl::StatusOr<Expression> expression = Expression::Parse(c.text);
    ASSERT_TRUE(expression.ok()) << expression.status();
    ExpectRefusal(expression->EvaluateInteger(scope).status(), c);
  }
}

TEST(ExpressionTest, TextIsAValueToo) {
  const Scope scope = TestScope();
  EXPECT_EQ(*Expression::Parse("zero ? \"x\" : dtype")->Evaluate(scope), Value("bf16"));
  EXPECT_EQ(*Expression::Parse("a * 2")->Evaluate(scope), Value(int64_t{14}));
}

TEST(ExpressionTest, ChecksEveryBranchWithoutValues) {
  const Scope prototype = TestScope();
  for (const char* good : {"a / zero", "zero ? a : b", "dtype == \"x\" && has(\"y\")"}) {
    EXPECT_TRUE(Expression::Parse(good)->CheckInteger(prototype).ok()) << good;
  }
  const std::vector<Bad> cases = {
      {"zero ? unknown : 2", "unknown name \"unknown\" at position 8"},
      {"zero && unknown", "unknown name"},
      {"a ? 1 : \"x\"", "differ in type"},
      {"a ? dtype : \"x\"", "an integer is needed"},
      {"1 || dtype", "text where an integer is needed"},
      {"a == dtype", "cannot be compared"},
  };
  for (const Bad& c : cases) {
    ExpectRefusal(Expression::Parse(c.text)->CheckInteger(prototype), c);
  }
  EXPECT_TRUE(Expression::Parse("a + (b ? has(\"x\") : 0)")->UsesFeatures());
  EXPECT_FALSE(Expression::Parse("a + b")->UsesFeatures());
}

std::string Repeat(int count, absl::string_view text) {
  std::string out;
  for (int i = 0; i < count; ++i) absl::StrAppend(&out, text);
  return out;
}

TEST(ExpressionTest, LengthAndDepthAreBounded) {
  const Scope scope = TestScope();
  EXPECT_TRUE(Expression::Parse(Repeat(63, "(") + "1" + Repeat(63, ")")).ok());
  for (const std::string& deep :
       {Repeat(64, "(") + "1" + Repeat(64, ")"), Repeat(64, "!") + "1",
        Repeat(65, "1?") + "1" + Repeat(65, ":1"), Repeat(64, "min(") + "1" + Repeat(64, ",1)"),
        Repeat(4000, "(")}) {
    const absl::Status status = Expression::Parse(deep).status();
    EXPECT_NE(status.message().find("more than 64 levels"), absl::string_view::npos) << status;
  }
  // A long chain is not a deep one.
  const absl::StatusOr<Expression> chain = Expression::Parse("0" + Repeat(2047, "+1"));
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(*chain->EvaluateInteger(scope), 2047);
  EXPECT_FALSE(Expression::Parse("00" + Repeat(2048, "+1")).ok());
}

TEST(ScopeTest, NestsAndReplaces) {
  Scope outer;
  outer.Set("x", int64_t{1});
  outer.Set("y", int64_t{2});
  outer.SetFeatures({"f"});
  Scope inner(&outer);
  inner.Set("x", int64_t{3});
  EXPECT_EQ(*inner.Find("x"), Value(int64_t{3}));
  EXPECT_EQ(*inner.Find("y"), Value(int64_t{2}));
  EXPECT_EQ(inner.Find("z"), nullptr);
  EXPECT_TRUE(inner.HasFeature("f"));
  EXPECT_FALSE(inner.HasFeature("g"));
  inner.Set("x", int64_t{4});
  EXPECT_EQ(*inner.Find("x"), Value(int64_t{4}));
  EXPECT_EQ(*outer.Find("x"), Value(int64_t{1}));
}

}  // namespace
}  // namespace whet
