// Random expressions against a second evaluator in 128 bits, which knows nothing of the first: it
// computes while the text is made.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/model/expression.h"
#include "tests/support/seed.h"

namespace whet {
namespace {

using Wide = __int128;

// Text with its value, or with none when evaluating it must fail.
struct Sample {
  std::string text;
  std::optional<Wide> value;
};

std::optional<Wide> InRange(Wide value) {
  if (value < std::numeric_limits<int64_t>::min()) return std::nullopt;
  if (value > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return value;
}

Wide Floor(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Sample Make(int depth) {
    if (depth == 0) return Literal();
    switch (Pick(7)) {
      case 0:
        return Literal();
      case 1:
        return Unary(depth);
      case 2:
        return Conditional(depth);
      case 3:
        return Call(depth);
      case 4:
        return Logic(depth);
      default:
        return Binary(depth);
    }
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }

  Sample Literal() {
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kEdges[] = {0, 1, -1, 2, -2, kMin, kMin + 1, kMax, kMax - 1, 1ll << 62};
    int64_t value = 0;
    switch (Pick(3)) {
      case 0:
        value = kEdges[Pick(std::size(kEdges))];
        break;
      case 1:
        value = Pick(40) - 20;
        break;
      default:
        value = static_cast<int64_t>((uint64_t{random_()} << 32) | random_()) >> Pick(63);
    }
    return {absl::StrCat("(", value, ")"), value};
  }

  Sample Unary(int depth) {
    const Sample a = Make(depth - 1);
    if (Pick(2) == 0) {
      return {absl::StrCat("(!", a.text, ")"),
              a.value ? std::optional<Wide>(*a.value == 0) : std::nullopt};
    }
    return {absl::StrCat("(-", a.text, ")"), a.value ? InRange(-*a.value) : std::nullopt};
  }

  Sample Conditional(int depth) {
    const Sample c = Make(depth - 1);
    const Sample yes = Make(depth - 1);
    const Sample no = Make(depth - 1);
    return {absl::StrCat("(", c.text, " ? ", yes.text, " : ", no.text, ")"), !c.value ? std::nullopt
                                                                             : *c.value != 0
                                                                                 ? yes.value
                                                                                 : no.value};
  }

  Sample Logic(int depth) {
    const Sample a = Make(depth - 1);
    const Sample b = Make(depth - 1);
    const bool is_and = Pick(2) == 0;
    Sample out = {absl::StrCat("(", a.text, is_and ? " && " : " || ", b.text, ")"), std::nullopt};
    if (!a.value) return out;
    if ((*a.value != 0) != is_and) {
      out.value = is_and ? 0 : 1;
    } else if (b.value) {
      out.value = *b.value != 0;
    }
    return out;
  }

  Sample Call(int depth) {
    static constexpr const char* kNames[] = {"min", "max", "ceil_div", "round_up", "next_pow2"};
    const int which = Pick(5);
    const Sample a = Make(depth - 1);
    if (which == 4) {
      Sample out = {absl::StrCat("next_pow2(", a.text, ")"), std::nullopt};
      if (!a.value) return out;
      Wide power = 1;
      while (power < *a.value) power *= 2;
      out.value = InRange(power);
      return out;
    }
    const Sample b = Make(depth - 1);
    Sample out = {absl::StrCat(kNames[which], "(", a.text, ", ", b.text, ")"), std::nullopt};
    if (!a.value || !b.value) return out;
    if (which == 0) out.value = *a.value < *b.value ? *a.value : *b.value;
    if (which == 1) out.value = *a.value > *b.value ? *a.value : *b.value;
    if (which >= 2 && *b.value > 0) {
      const Wide steps = -Floor(-*a.value, *b.value);
      out.value = InRange(which == 2 ? steps : steps * *b.value);
    }
    return out;
  }

  Sample Binary(int depth) {
    static constexpr const char* kOperators[] = {
        "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">="};
    const int which = Pick(11);
    const Sample a = Make(depth - 1);
    const Sample b = Make(depth - 1);
    Sample out = {absl::StrCat("(", a.text, " ", kOperators[which], " ", b.text, ")"),
                  std::nullopt};
    if (!a.value || !b.value) return out;
    const Wide x = *a.value;
    const Wide y = *b.value;
    const bool divides = which == 3 || which == 4;
    if (divides && y == 0) return out;
    const Wide results[] = {x + y,
                            x - y,
                            x * y,
                            divides ? x / y : 0,
                            divides ? x % y : 0,
                            x == y,
                            x != y,
                            x<y, x <= y, x> y,
                            x >= y};
    out.value = InRange(results[which]);
    return out;
  }

  std::mt19937 random_;
};

TEST(ExpressionPropertyTest, AgreesWithWideArithmetic) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedText(seed));
  Generator generator(seed);
  int failing = 0;
  constexpr int kSamples = 20000;
  for (int i = 0; i < kSamples; ++i) {
    const Sample sample = generator.Make(i % 5);
    if (sample.text.size() > 4096) continue;
    const absl::StatusOr<Expression> expression = Expression::Parse(sample.text);
    ASSERT_TRUE(expression.ok()) << expression.status();
    const absl::StatusOr<int64_t> value = expression->EvaluateInteger(Scope());
    failing += !sample.value.has_value();
    ASSERT_EQ(value.ok(), sample.value.has_value()) << sample.text << " " << value.status();
    if (value.ok()) {
      ASSERT_EQ(Wide{*value}, *sample.value) << sample.text;
    }
  }
  // Both outcomes must be well represented, or the test tests little.
  EXPECT_GT(failing, kSamples / 50);
  EXPECT_LT(failing, kSamples * 4 / 5);
}

}  // namespace
}  // namespace whet
