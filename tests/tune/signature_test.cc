#include "src/tune/signature.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_device.h"

namespace whet {
namespace {

Argument Bf16(std::vector<int64_t> shape) {
  return TensorArgument("k", Direction::kIn, DType::kBF16, std::move(shape));
}

// A [rows, columns] tensor of what `value(row, column)` gives.
template <typename Value>
std::string Fill(const Argument& a, Value value) {
  const int64_t columns = a.shape.back();
  std::string bytes(static_cast<size_t>(a.span_bytes), '\0');
  for (int64_t i = 0; i < a.span_bytes / 2; ++i) {
    EncodeElement(a.dtype, value(i / columns, i % columns), bytes.data() + 2 * i);
  }
  return bytes;
}

class Kinds {
 public:
  double Normal() { return normal_(random_); }
  double Uniform() { return uniform_(random_); }

 private:
  std::mt19937 random_{11};
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_{0, 1};
};

// Mean Hamming distances in bits of 16, as measured on tensors of these kinds beside the clock.
TEST(SignatureTest, KnownKindsOfData) {
  const Argument a = Bf16({512, 128});
  Kinds kinds;
  const InputSignature normal = SignatureOf(a, Fill(a, [&](auto, auto) { return kinds.Normal(); }));
  EXPECT_NEAR(normal.toggles_inner * 16, 5.62, 0.15);
  EXPECT_NEAR(normal.toggles_outer * 16, 5.62, 0.15);
  EXPECT_NEAR(normal.ones * 16, 9.73, 0.25);
  EXPECT_EQ(normal.zeros, 0);
  EXPECT_NEAR(normal.exponent_spread, 1.6, 0.2);

  const InputSignature uniform =
      SignatureOf(a, Fill(a, [&](auto, auto) { return kinds.Uniform(); }));
  EXPECT_NEAR(uniform.toggles_inner * 16, 4.65, 0.15);

  const InputSignature sparse = SignatureOf(
      a, Fill(a, [&](auto, auto) { return kinds.Uniform() < 0.5 ? 0 : kinds.Normal(); }));
  EXPECT_NEAR(sparse.zeros, 0.5, 0.03);
  EXPECT_NEAR(sparse.toggles_inner * 16, 6.39, 0.2);

  std::vector<double> by_row(512), by_column(128);
  for (double& v : by_row) v = kinds.Normal();
  for (double& v : by_column) v = kinds.Normal();
  const InputSignature rows = SignatureOf(
      a, Fill(a, [&](int64_t row, int64_t) { return by_row[static_cast<size_t>(row)]; }));
  EXPECT_EQ(rows.toggles_inner, 0);
  EXPECT_NEAR(rows.toggles_outer * 16, 5.6, 0.5);
  const InputSignature columns = SignatureOf(
      a, Fill(a, [&](int64_t, int64_t c) { return by_column[static_cast<size_t>(c)]; }));
  EXPECT_EQ(columns.toggles_outer, 0);
  EXPECT_NEAR(columns.toggles_inner * 16, 5.6, 0.6);
}

TEST(SignatureTest, ZerosOfBothSignsAndInfinities) {
  const Argument a = Bf16({4});
  std::string bytes(8, '\0');
  EncodeElement(DType::kBF16, -0.0, bytes.data() + 2);
  EncodeElement(DType::kBF16, INFINITY, bytes.data() + 4);
  EncodeElement(DType::kBF16, NAN, bytes.data() + 6);
  const InputSignature s = SignatureOf(a, bytes);
  EXPECT_EQ(s.elements, 4);
  EXPECT_EQ(s.zeros, 0.5);
  EXPECT_EQ(s.exponent_spread, 0);
  EXPECT_EQ(s.toggles_outer, 0);  // one row has no neighbours
}

TEST(SignatureTest, EveryTypeAndShapeReadsInside) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kE4M3, DType::kE4M3Fnuz, DType::kE5M2,
                      DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {1}, {5}, {1000}, {2, 3}, {3, 1}, {2, 5, 7, 3}, {100, 300, 70}}) {
      const Argument a = TensorArgument("x", Direction::kIn, dtype, shape);
      // Exactly as long as the tensor: AddressSanitizer watches.
      const std::vector<char> bytes(static_cast<size_t>(a.span_bytes), 1);
      const InputSignature s = SignatureOf(a, absl::string_view(bytes.data(), bytes.size()));
      EXPECT_GT(s.elements, 0);
      EXPECT_LE(s.elements * DTypeBytes(dtype), kSignatureBytes);
      EXPECT_EQ(s.toggles_inner, 0);
    }
    const Argument empty = TensorArgument("x", Direction::kIn, dtype, {3, 0, 2});
    EXPECT_EQ(SignatureOf(empty, "").elements, 0);
  }
}

TEST(SignatureTest, TheDeviceGivesWhatTheHostGives) {
  FakeDevice device;
  Argument k = Bf16({3, 200, 64});
  k.strides = {64, 3 * 64, 1};  // [sequence, head, dim] seen as [head, sequence, dim]
  Kinds kinds;
  Argument flat = Bf16({200, 3 * 64});
  std::string bytes = Fill(flat, [&](auto, auto) { return kinds.Normal(); });
  const std::vector<Argument> arguments = {k,
                                           TensorArgument("o", Direction::kOut, DType::kBF16, {8}),
                                           ScalarArgument("scale", DType::kF32)};
  const absl::StatusOr<DataSignature> s =
      TakeSignature(arguments, {bytes.data(), bytes.data(), nullptr}, device, nullptr);
  ASSERT_TRUE(s.ok());
  ASSERT_EQ(s->inputs.size(), 1u);  // outputs and scalars have none
  const InputSignature host = SignatureOf(k, bytes);
  EXPECT_EQ(s->inputs[0].toggles_outer, host.toggles_outer);
  EXPECT_EQ(s->inputs[0].ones, host.ones);
  EXPECT_EQ(s->inputs[0].elements, host.elements);

  EXPECT_EQ(TakeSignature(arguments, {nullptr}, device, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  device.Fail(FakeDevice::Call::kCopy, 3, absl::UnavailableError("lost"));
  EXPECT_EQ(TakeSignature(arguments, {bytes.data(), nullptr, nullptr}, device, nullptr)
                .status()
                .message(),
            "lost");
}

DataSignature Of(double inner, double outer, double zeros = 0) {
  return {
      .inputs = {{.name = "k", .toggles_inner = inner, .toggles_outer = outer, .zeros = zeros}}};
}

TEST(SignatureTest, DistanceTellsClassesApart) {
  const DataSignature zeros = Of(0, 0, 1), normal = Of(0.351, 0.351), captured = Of(0.35, 0.328),
                      smooth = Of(0.427, 0.191), sparse = Of(0.138, 0.138, 0.9);
  EXPECT_EQ(SignatureDistance(normal, normal), 0);
  EXPECT_GT(SignatureDistance(zeros, normal), 1);
  EXPECT_LT(SignatureDistance(normal, captured), kSameClass);
  EXPECT_GT(SignatureDistance(normal, smooth), kSameClass);
  EXPECT_GT(SignatureDistance(normal, sparse), kSameClass);
  EXPECT_EQ(SignatureDistance(normal, smooth), SignatureDistance(smooth, normal));
  DataSignature more = normal;
  more.inputs.push_back({.name = "mask"});
  EXPECT_EQ(SignatureDistance(normal, more), 1);
  EXPECT_EQ(SignatureDistance(more, normal), 1);

  double distance = 0;
  EXPECT_EQ(NearestSignature(captured, {zeros, sparse, normal, smooth}, &distance), 2);
  EXPECT_LT(distance, kSameClass);
  EXPECT_EQ(NearestSignature(captured, {}, &distance), -1);
}

TEST(SignatureTest, JsonComesBackAndGarbageIsRefused) {
  const DataSignature s = Of(0.25, 0.5, 0.125);
  const absl::StatusOr<DataSignature> back = SignatureFromJson(SignatureToJson(s));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(SignatureDistance(s, *back), 0);
  for (const char* text :
       {"", "[]", "{}", R"({"inputs":7})", R"({"inputs":[7]})", R"({"inputs":[{"name":7}]})"}) {
    EXPECT_EQ(SignatureFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(SignatureFromJson(R"({"inputs":[{"name":"k","elements":1e300,"zeros":"x"}]})").ok());
}

}  // namespace
}  // namespace whet
