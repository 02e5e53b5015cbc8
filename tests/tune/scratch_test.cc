#include "src/tune/scratch.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/arguments.h"
#include "tests/support/fake_device.h"

namespace whet {
namespace {

using testing::Test;

std::vector<Argument> Three() {
  return {TensorArgument("x", Direction::kIn, DType::kF32, {8}),
          TensorArgument("y", Direction::kOut, DType::kF32, {8}),
          TensorArgument("z", Direction::kInOut, DType::kF32, {8})};
}

class ScratchTest : public Test {
 protected:
  FakeDevice device_;
  std::vector<float> x_ = std::vector<float>(8, 1.0f), y_ = std::vector<float>(8, 2.0f),
                     z_ = std::vector<float>(8, 3.0f);

  absl::StatusOr<Scratch> Make(std::vector<Argument> arguments) {
    return Scratch::Create(std::move(arguments), {x_.data(), y_.data(), z_.data()}, device_,
                           nullptr);
  }
};

TEST_F(ScratchTest, InputsAreTheCallersAndOutputsPrivate) {
  absl::StatusOr<Scratch> scratch = Make(Three());
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  EXPECT_EQ(scratch->written(), (std::vector<int>{1, 2}));
  ArgumentPack pack(Three(), {});
  scratch->Bind(pack);
  EXPECT_EQ(pack.pointer(0), x_.data());
  EXPECT_NE(pack.pointer(1), y_.data());
  EXPECT_NE(pack.pointer(2), z_.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pack.pointer(1)) % 256, 0u);

  // Unwritten outputs are NaN, read-write ones are clones.
  auto* y = static_cast<float*>(pack.pointer(1));
  auto* z = static_cast<float*>(pack.pointer(2));
  EXPECT_TRUE(y[0] != y[0]);
  EXPECT_EQ(z[7], 3.0f);
  y[0] = 5;
  z[0] = 5;
  ASSERT_TRUE(scratch->Restore().ok());
  EXPECT_EQ(y[0], 5.0f);
  EXPECT_EQ(z[0], 3.0f);
  z[0] = 5;
  ASSERT_TRUE(scratch->Reset().ok());
  EXPECT_TRUE(y[0] != y[0]);
  EXPECT_EQ(z[0], 3.0f);
  EXPECT_TRUE(scratch->needs_restore());
  std::memcpy(y, x_.data(), 32);
  EXPECT_EQ(scratch->Read(1).value(), std::string(reinterpret_cast<char*>(x_.data()), 32));
  EXPECT_EQ(y_[0], 2.0f);
  EXPECT_EQ(z_[0], 3.0f);
}

TEST_F(ScratchTest, EverythingIsFreed) {
  { ASSERT_TRUE(Make(Three()).ok()); }
  EXPECT_EQ(device_.live_allocations(), 0);
}

struct TouchCase {
  const char* name;
  int64_t at;  // bytes from the start of y (32 bytes long)
  std::string expected;
};

class GuardTest : public ScratchTest, public testing::WithParamInterface<TouchCase> {};

TEST_P(GuardTest, FindsTheTouchedByte) {
  Scratch scratch = Make(Three()).value();
  ArgumentPack pack(Three(), {});
  scratch.Bind(pack);
  EXPECT_EQ(scratch.CheckGuards().value(), "");
  static_cast<char*>(pack.pointer(1))[GetParam().at] = 0;
  EXPECT_EQ(scratch.CheckGuards().value(), GetParam().expected);
  ASSERT_TRUE(scratch.Reset().ok());
  EXPECT_EQ(scratch.CheckGuards().value(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Bytes, GuardTest,
    testing::Values(TouchCase{"First", 0, ""}, TouchCase{"Last", 31, ""},
                    TouchCase{"NextAfter", 32, "it wrote 1 byte past the end of argument y"},
                    TouchCase{"FarAfter", 32 + 4095,
                              "it wrote 4096 bytes past the end of argument y"},
                    TouchCase{"JustBefore", -1, "it wrote 1 byte before argument y"},
                    TouchCase{"FarBefore", -4096, "it wrote 4096 bytes before argument y"}),
    [](const auto& param) { return param.param.name; });

TEST_F(ScratchTest, InPlaceOperationsShareOneClone) {
  std::vector<Argument> arguments = Three();
  const absl::StatusOr<Scratch> scratch =
      Scratch::Create(arguments, {x_.data(), x_.data(), z_.data()}, device_, nullptr);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  ArgumentPack pack(arguments, {});
  scratch->Bind(pack);
  EXPECT_NE(pack.pointer(0), x_.data());
  EXPECT_EQ(pack.pointer(0), pack.pointer(1));
  EXPECT_EQ(static_cast<float*>(pack.pointer(1))[3], 1.0f);
  EXPECT_TRUE(scratch->needs_restore());
}

TEST_F(ScratchTest, PartialOverlapIsRefusedAndInterleavedViewsAreNot) {
  std::vector<Argument> arguments = Three();
  EXPECT_EQ(Scratch::Create(arguments, {x_.data(), x_.data() + 1, z_.data()}, device_, nullptr)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  // Two outputs on one place.
  EXPECT_EQ(Scratch::Create(arguments, {x_.data(), y_.data(), y_.data()}, device_, nullptr)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  // Even and odd elements of one array.
  std::vector<float> packed(16, 1.0f);
  for (int i : {0, 1}) {
    arguments[static_cast<size_t>(i)].strides = {2};
    arguments[static_cast<size_t>(i)].span_bytes = 15 * 4;
  }
  EXPECT_TRUE(
      Scratch::Create(arguments, {packed.data(), packed.data() + 1, z_.data()}, device_, nullptr)
          .ok());
}

TEST_F(ScratchTest, AbsentAndEmptyTensorsNeedNoPointer) {
  std::vector<Argument> arguments = Three();
  arguments[1].present = false;
  arguments[2] = TensorArgument("z", Direction::kOut, DType::kF32, {0});
  const absl::StatusOr<Scratch> scratch =
      Scratch::Create(arguments, {x_.data(), nullptr, nullptr}, device_, nullptr);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  EXPECT_TRUE(scratch->written().empty());
  EXPECT_FALSE(scratch->needs_restore());
}

TEST_F(ScratchTest, BadRequests) {
  EXPECT_EQ(Scratch::Create(Three(), {x_.data()}, device_, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status missing =
      Scratch::Create(Three(), {nullptr, y_.data(), z_.data()}, device_, nullptr).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(missing.message().find("argument x"), absl::string_view::npos);
}

TEST_F(ScratchTest, HeadRoomIsCheckedBeforeAnythingIsAllocated) {
  device_.SetFreeMemory(10'000);
  const absl::Status status = Make(Three()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kAllocate), 0);
}

TEST_F(ScratchTest, NothingLeaksWhenTheNthCallFails) {
  for (FakeDevice::Call call :
       {FakeDevice::Call::kAllocate, FakeDevice::Call::kFill, FakeDevice::Call::kCopy}) {
    for (int nth = 1; nth < 20; ++nth) {
      FakeDevice device;
      device.Fail(call, nth, absl::ResourceExhaustedError("no more"));
      const absl::Status status =
          Scratch::Create(Three(), {x_.data(), y_.data(), z_.data()}, device, nullptr).status();
      EXPECT_EQ(device.live_allocations(), 0);
      if (device.calls(call) < nth) {
        EXPECT_TRUE(status.ok());
        break;
      }
      EXPECT_EQ(status.message(), "no more");
      ASSERT_LT(nth, 19);
    }
  }
}

}  // namespace
}  // namespace whet
