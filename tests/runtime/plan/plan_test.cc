#include "src/runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/fake_device.h"

namespace whet {
namespace {

// A kernel of two tensors and a scalar, with a tensor map for each tensor.
class PlanTest : public ::testing::Test {
 protected:
  struct Seen {
    void* tensors[2];
    float scale;
    void* in_maps[2];
    char rest[2];  // a byte of each map that no address touches
    void* last[2];
  };

  std::unique_ptr<Plan> MakePlan(bool maps) {
    PreparedVariant prepared;
    prepared.kernel = device_.AddKernel(
        "add",
        [this, maps](void* const* params) {
          Seen seen = {};
          for (int i = 0; i < 2; ++i) {
            std::memcpy(&seen.tensors[i], params[i], sizeof(void*));
            if (!maps) continue;
            const char* const map = static_cast<const char*>(params[3 + i]);
            std::memcpy(&seen.in_maps[i], map, sizeof(void*));
            seen.rest[i] = map[64];
            std::memcpy(&seen.last[i], map + 120, sizeof(void*));
          }
          std::memcpy(&seen.scale, params[2], sizeof(float));
          seen_.push_back(seen);
        },
        1000);
    std::vector<Argument> arguments(3);
    for (int i = 0; i < 2; ++i) {
      arguments[i].name = i == 0 ? "x" : "y";
      arguments[i].span_bytes = 4096;
      TensorMap map;
      map.argument = i;
      if (maps) prepared.tensor_maps.push_back(map);
    }
    arguments[2].name = "scale";
    arguments[2].direction = Direction::kScalar;
    Resolution resolution;
    resolution.problem = "add:n=1024";
    return *Plan::Make(device_, nullptr, prepared, arguments, 16, resolution);
  }
  absl::Status Launch(const Plan& plan, void* x, void* y) {
    float scale = 2;
    void* args[] = {&x, &y, &scale};
    return plan.Launch(args, nullptr);
  }
  static void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

  FakeDevice device_;
  std::vector<Seen> seen_;
};

TEST_F(PlanTest, MapsFollowTheirTensorsToEveryAddress) {
  for (const bool scattered : {false, true}) {
    SCOPED_TRACE(scattered);
    device_.SetScatteredMaps(scattered);
    seen_.clear();
    const std::unique_ptr<Plan> plan = MakePlan(/*maps=*/true);
    // Where it was, one moved, both, and back: neighbours must not see each other's address.
    const uintptr_t places[][2] = {{0x1000, 0x2000}, {0x1000, 0x2000}, {0x5000, 0x2000},
                                   {0x1000, 0x6010}, {0x7000, 0x8000}, {0x2000, 0x1000},
                                   {0x1000, 0x2000}};
    for (const auto& place : places) {
      ASSERT_TRUE(Launch(*plan, At(place[0]), At(place[1])).ok());
      const Seen& seen = seen_.back();
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(seen.tensors[i], At(place[i]));
        EXPECT_EQ(seen.in_maps[i], At(place[i]));
        EXPECT_EQ(seen.rest[i], i);
        if (scattered) EXPECT_EQ(seen.last[i], At(place[i]));
      }
      EXPECT_EQ(seen.scale, 2);
    }
    EXPECT_EQ(seen_.size(), std::size(places));
  }
}

TEST_F(PlanTest, MapsAreEncodedAtTheFirstLaunchAlone) {
  const std::unique_ptr<Plan> plan = MakePlan(/*maps=*/true);
  ASSERT_TRUE(Launch(*plan, At(0x1000), At(0x2000)).ok());
  const int64_t first = device_.calls(FakeDevice::Call::kEncode);
  for (uintptr_t at = 0x1000; at < 0x9000; at += 0x1000) {
    ASSERT_TRUE(Launch(*plan, At(at), At(0x2000)).ok());
  }
  EXPECT_GT(first, 0);
  EXPECT_EQ(device_.calls(FakeDevice::Call::kEncode), first);
}

TEST_F(PlanTest, AMapThatCannotBeEncodedIsAnErrorAndNothingRuns) {
  const std::unique_ptr<Plan> plan = MakePlan(/*maps=*/true);
  device_.Fail(FakeDevice::Call::kEncode, 1, absl::InvalidArgumentError("stride of 3 bytes"),
               /*for_ever=*/true);
  const absl::Status status = Launch(*plan, At(0x1000), At(0x2000));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(seen_.empty());
}

TEST_F(PlanTest, APointerThatIsNullOrMisalignedIsNamed) {
  for (const bool maps : {false, true}) {
    const std::unique_ptr<Plan> plan = MakePlan(maps);
    for (const auto& [x, y, said] :
         {std::tuple(uintptr_t{0}, uintptr_t{0x2000}, "argument x is a null pointer"),
          std::tuple(uintptr_t{0x1000}, uintptr_t{0x2008},
                     "argument y is not aligned to 16 bytes")}) {
      const absl::Status status = Launch(*plan, At(x), At(y));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(status.message()).find(said), std::string::npos) << status;
    }
  }
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace whet
