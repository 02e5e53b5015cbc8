#include "src/ops/host_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/status/status.h"

namespace whet {
namespace {

TEST(HostTensorTest, NewBytesAreNaNEverywhere) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    const HostTensor t = *HostTensor::Make(dtype, {3, 5}, {8, 1});
    for (int64_t i = 0; i < 21; ++i) EXPECT_TRUE(std::isnan(t.At(i))) << DTypeName(dtype) << i;
  }
}

TEST(HostTensorTest, SpansCountPaddingAndEmptyTensorsHaveNone) {
  EXPECT_EQ(HostTensor::Make(DType::kF32, {3, 5}, {8, 1})->span_bytes(), 4 * (2 * 8 + 5));
  EXPECT_EQ(HostTensor::Make(DType::kF32, {})->span_bytes(), 4);
  const HostTensor empty = *HostTensor::Make(DType::kF32, {1000000, 0, 1000000});
  EXPECT_EQ(empty.span_bytes(), 0);
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_NE(empty.data(), nullptr);
  EXPECT_EQ(HostTensor().data(), nullptr);
}

TEST(HostTensorTest, RowsAreCountedInOrderWhateverTheStrides) {
  const HostTensor t = *HostTensor::Make(DType::kF32, {2, 3, 4});
  const HostTensor view = t.Permuted({1, 0, 2});
  EXPECT_EQ(view.shape(), (std::vector<int64_t>{3, 2, 4}));
  EXPECT_EQ(view.RowCount(), 6);
  std::vector<int64_t> offsets;
  for (int64_t row = 0; row < 6; ++row) offsets.push_back(view.RowOffset(row));
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 12, 4, 16, 8, 20}));
  EXPECT_EQ(view.ToString(), "f32 [3, 2, 4] with strides [4, 12, 1]");
}

TEST(HostTensorTest, ClonesAreApartAndViewsAreNot) {
  HostTensor t = *HostTensor::Make(DType::kF32, {4});
  t.Set(0, 1);
  HostTensor clone = t.Clone();
  HostTensor view = t.Permuted({0});
  t.Set(0, 2);
  EXPECT_EQ(clone.At(0), 1);
  EXPECT_EQ(view.At(0), 2);
}

TEST(HostTensorTest, ConvertsByRounding) {
  HostTensor t = *HostTensor::Make(DType::kF32, {2, 2}, {3, 1});
  t.Set(0, 1.00390625);  // half way between two bf16 numbers: to even
  t.Set(1, 3);
  t.Set(3, -0.1);
  t.Set(4, 1e38);
  const HostTensor b = *t.ConvertedTo(DType::kBF16);
  EXPECT_EQ(b.strides(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(b.At(0), 1);
  EXPECT_EQ(b.At(1), 3);
  EXPECT_NEAR(b.At(2), -0.1, 0.0005);
}

TEST(HostTensorTest, RefusesShapesThatCannotBe) {
  const std::vector<int64_t> huge = {int64_t{1} << 62, 8};
  EXPECT_EQ(HostTensor::Make(DType::kF32, huge).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTensor::Make(DType::kF32, {2, -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTensor::Make(DType::kF32, {2}, {1, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTensor::Make(DType::kF32, {2}, {-1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace whet
