#include "src/tune/verification.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/arguments.h"

namespace whet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string Encode(DType dtype, const std::vector<double>& values) {
  std::string bytes(values.size() * static_cast<size_t>(DTypeBytes(dtype)), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    EncodeElement(dtype, values[i], bytes.data() + i * static_cast<size_t>(DTypeBytes(dtype)));
  }
  return bytes;
}

struct CompareCase {
  const char* name;
  std::vector<double> got, want;
  double relative_l2;
  const char* problem;
};

class CompareTest : public testing::TestWithParam<CompareCase> {};

TEST_P(CompareTest, EveryFloatingType) {
  const CompareCase& c = GetParam();
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Argument y = TensorArgument("y", Direction::kOut, dtype, {2, 2});
    const Difference d = CompareTensors(y, Encode(dtype, c.got), Encode(dtype, c.want));
    if (std::isinf(c.relative_l2)) {
      EXPECT_TRUE(std::isinf(d.relative_l2));
    } else {
      EXPECT_NEAR(d.relative_l2, c.relative_l2, 1e-12) << DTypeName(dtype);
    }
    EXPECT_EQ(d.problem, c.problem) << DTypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Values, CompareTest,
    testing::Values(CompareCase{"Same", {1, 2, 3, 4}, {1, 2, 3, 4}, 0, ""},
                    CompareCase{"OneOff", {1, 2, 3, 6}, {1, 2, 3, 4}, 2 / std::sqrt(30.0), ""},
                    CompareCase{"SameNan", {1, kNan, 3, 4}, {1, kNan, 3, 4}, 0, ""},
                    CompareCase{
                        "SameInfinity", {1, -kInfinity, 3, 4}, {1, -kInfinity, 3, 4}, 0, ""},
                    CompareCase{"NewNan",
                                {1, 2, kNan, 4},
                                {1, 2, 3, 4},
                                0,
                                "it gives NaN at y[1, 0] where the reference gives 3"},
                    CompareCase{"LostNan",
                                {1, 2, 3, 4},
                                {1, kNan, 3, 4},
                                0,
                                "it gives 2 at y[0, 1] where the reference gives NaN"},
                    CompareCase{"OtherInfinity",
                                {1, 2, 3, kInfinity},
                                {1, 2, 3, -kInfinity},
                                0,
                                "it gives +inf at y[1, 1] where the reference gives -inf"},
                    CompareCase{"NanForInfinity",
                                {kNan, 2, 3, 4},
                                {-kInfinity, 2, 3, 4},
                                0,
                                "it gives NaN at y[0, 0] where the reference gives -inf"},
                    CompareCase{"Zeros", {0, 0, 0, 0}, {0, 0, 0, 0}, 0, ""},
                    CompareCase{"NotZeros", {0, 0, 0.5, 0}, {0, 0, 0, 0}, kInfinity, ""}),
    [](const auto& param) { return param.param.name; });

TEST(VerificationTest, SmallTypesAndIntegers) {
  for (DType dtype :
       {DType::kE4M3, DType::kE4M3Fnuz, DType::kE5M2, DType::kI8, DType::kI32, DType::kI64}) {
    const Argument y = TensorArgument("y", Direction::kOut, dtype, {3});
    const std::string want = Encode(dtype, {1, 2, 2});
    EXPECT_EQ(CompareTensors(y, want, want).relative_l2, 0) << DTypeName(dtype);
    EXPECT_NEAR(CompareTensors(y, Encode(dtype, {4, 2, 2}), want).relative_l2, 1, 1e-12)
        << DTypeName(dtype);
  }
}

TEST(VerificationTest, StridedTensorsLookAtTheirElementsAndAtTheGaps) {
  // 2 rows of 3 elements, 5 apart: elements 0 1 2 . . 5 6 7
  Argument y = TensorArgument("y", Direction::kOut, DType::kF32, {2, 3});
  y.strides = {5, 1};
  y.span_bytes = 8 * 4;
  const std::string want = Encode(DType::kF32, {1, 2, 3, 0, 0, 4, 5, 6});
  EXPECT_EQ(CompareTensors(y, want, want).problem, "");
  const std::string other = Encode(DType::kF32, {1, 2, 3, 0, 0, 4, 5, 7});
  EXPECT_NEAR(CompareTensors(y, other, want).relative_l2, 1 / std::sqrt(91.0), 1e-12);
  const std::string spilt = Encode(DType::kF32, {1, 2, 3, 9, 0, 4, 5, 6});
  EXPECT_EQ(CompareTensors(y, spilt, want).relative_l2, 0);
  EXPECT_EQ(CompareTensors(y, spilt, want).problem,
            "it wrote between the elements of argument y, 12 bytes from its start");
}

TEST(VerificationTest, StridedLastDimensionAndScalars) {
  Argument y = TensorArgument("y", Direction::kOut, DType::kF32, {2, 2});
  y.strides = {1, 2};  // transposed
  const std::string want = Encode(DType::kF32, {1, 2, 3, 4});
  const std::string got = Encode(DType::kF32, {1, 2, kNan, 4});
  EXPECT_EQ(CompareTensors(y, got, want).problem,
            "it gives NaN at y[0, 1] where the reference gives 3");
  const Argument one = TensorArgument("s", Direction::kOut, DType::kF32, {});
  EXPECT_EQ(CompareTensors(one, Encode(DType::kF32, {2}), Encode(DType::kF32, {1})).relative_l2, 1);
  const Argument empty = TensorArgument("e", Direction::kOut, DType::kF32, {4, 0});
  EXPECT_EQ(CompareTensors(empty, "", "").relative_l2, 0);
}

TEST(VerificationTest, LargeTensorsAreComparedInPieces) {
  // More elements than one piece of work takes, in rows of a length that is no multiple of anything.
  const int64_t rows = 9973, columns = 101;
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const Argument y = TensorArgument("y", Direction::kOut, dtype, {rows, columns});
    const std::vector<double> ones(static_cast<size_t>(rows * columns), 1);
    const std::string want = Encode(dtype, ones);
    std::vector<double> values = ones;
    values[12345] = 3;
    values.back() = -1;
    const double expected = std::sqrt(8.0 / static_cast<double>(rows * columns));
    EXPECT_NEAR(CompareTensors(y, Encode(dtype, values), want).relative_l2, expected, 1e-12);
    // Of several problems the first is told.
    values[static_cast<size_t>(9000 * columns + 7)] = kNan;
    values[static_cast<size_t>(9001 * columns)] = kInfinity;
    const Difference d = CompareTensors(y, Encode(dtype, values), want);
    EXPECT_NEAR(d.relative_l2, expected, 1e-7);
    EXPECT_EQ(d.problem, "it gives NaN at y[9000, 7] where the reference gives 1");
  }
}

TEST(VerificationTest, UnwrittenOutputIsAProblemInEveryFloatingType) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    const Argument y = TensorArgument("y", Direction::kOut, dtype, {2});
    std::string got = Encode(dtype, {1, 1});
    const std::string want = got;
    const auto width = static_cast<size_t>(DTypeBytes(dtype));
    got.replace(width, width, std::string(width, '\xFF'));
    EXPECT_NE(CompareTensors(y, got, want).problem, "") << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace whet
