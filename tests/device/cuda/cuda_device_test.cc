// The CUDA layer over a test double of the driver: calls in order, contexts given back, errors of every call passed on, nothing leaked.

#include "src/device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/support/fake_gpu/device_session.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr char kObject[] = "fake-object sm_90a\nadd_one\nfault\n";
constexpr char kNoNvml[] = "libwhet-has-no-such-nvml.so";

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string library = RunfilePath("tests/support/fake_gpu/libfake_cuda.so");
    absl::StatusOr<std::unique_ptr<const CudaDriver>> driver = CudaDriver::Load(library);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    fake_.emplace(library);
    control_ = &fake_->control();
  }

  void TearDown() override {
    fake_->ExpectNothingLeft();
    CuContext current = nullptr;
    driver_->cuCtxGetCurrent(&current);
    EXPECT_EQ(current, nullptr) << "a context was left current";
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(int index = 0) {
    return OpenCudaDevice(index, *driver_, kNoNvml);
  }

  std::unique_ptr<const CudaDriver> driver_;
  std::optional<FakeGpu> fake_;
  FakeGpuControl* control_ = nullptr;
};

TEST_F(CudaDeviceTest, IdentifiesTheProduct) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceIdentity& identity = (*device)->identity();
  EXPECT_EQ(identity.target.ToString(), "sm_90a");
  EXPECT_EQ(identity.product, "Fake H200");
  EXPECT_EQ(identity.compute_units, 132);
  EXPECT_EQ(identity.l2_bytes, 50 << 20);
  EXPECT_EQ(identity.shared_bytes_max, 232448);
  EXPECT_EQ(identity.driver, "CUDA 13.0");
  EXPECT_FALSE((*device)->Telemetry().clock_mhz.has_value());
}

TEST_F(CudaDeviceTest, NvmlIsNotOpenedBeforeItIsNeeded) {
  const auto device =
      OpenCudaDevice(0, *driver_, RunfilePath("tests/support/fake_gpu/libfake_nvml.so"));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device, kObject).ok());
  EXPECT_FALSE((*device)->identity_is_settled());
  EXPECT_EQ((*device)->early_identity().product, "Fake H200");
  EXPECT_EQ((*device)->early_identity().power_cap_watts, 0);

  const DeviceIdentity& whole = (*device)->identity();
  EXPECT_TRUE((*device)->identity_is_settled());
  EXPECT_EQ(whole.product, "Fake H200");
  EXPECT_EQ(whole.power_cap_watts, 700);
  EXPECT_EQ(whole.partition, "");
  EXPECT_EQ(whole.driver, "CUDA 13.0, driver 580.1");
  EXPECT_EQ((*device)->early_identity().power_cap_watts, 0) << "it changed under a reader";
  EXPECT_EQ((*device)->Telemetry().clock_mhz, 1980);
}

TEST_F(CudaDeviceTest, WithoutNvmlTheIdentityIsSettledAllTheSame) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_FALSE((*device)->identity_is_settled());
  EXPECT_EQ((*device)->identity().power_cap_watts, 0);
  EXPECT_TRUE((*device)->identity_is_settled());
}

TEST_F(CudaDeviceTest, RunsAndGivesBackWhatItTook) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device, kObject).ok());
  EXPECT_EQ(control_->launches, 2);
  EXPECT_EQ(control_->last_grid[0], 7u);
  EXPECT_EQ(control_->last_block[0], 128u);
  EXPECT_EQ(control_->last_cluster[0], 1u);
  EXPECT_EQ(control_->last_shared_bytes, 100000u);
}

TEST_F(CudaDeviceTest, LaunchesClusters) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto module = (*device)->LoadModule(kObject);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto kernel = (*module)->GetKernel("add_one", 0);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  float x[1] = {1};
  float* pointer = x;
  int32_t n = 1;
  void* params[] = {&pointer, &n};
  LaunchGeometry geometry;
  geometry.grid[0] = 8;
  geometry.cluster[0] = 2;
  EXPECT_TRUE((*device)->Launch(*kernel, geometry, params, nullptr).ok());
  EXPECT_EQ(control_->last_cluster[0], 2u);
  EXPECT_EQ(x[0], 2);
  geometry.grid[0] = 7;
  EXPECT_TRUE(absl::IsInvalidArgument((*device)->Launch(*kernel, geometry, params, nullptr)));
}

TEST_F(CudaDeviceTest, LeavesTheCallersContextCurrent) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  int other = 0;
  const auto mine = reinterpret_cast<CuContext>(&other);
  ASSERT_EQ(driver_->cuCtxPushCurrent_v2(mine), 0);
  EXPECT_TRUE(UseDevice(**device, kObject).ok());
  CuContext current = nullptr;
  ASSERT_EQ(driver_->cuCtxPopCurrent_v2(&current), 0);
  EXPECT_EQ(current, mine);
}

TEST_F(CudaDeviceTest, EveryFailureComesBack) {
  ExpectEveryFailureComesBack(*fake_, [&] {
    const auto device = Open();
    return device.ok() ? UseDevice(**device, kObject) : device.status();
  });
}

TEST_F(CudaDeviceTest, AFaultInAKernelIsALostDevice) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  auto module = (*device)->LoadModule(kObject);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto kernel = (*module)->GetKernel("fault", 0);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE((*device)->Launch(*kernel, LaunchGeometry(), nullptr, nullptr).ok());
  const absl::Status status = (*device)->Synchronize(nullptr);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ILLEGAL_ADDRESS (700)"));
  control_->sticky_error = 0;
}

TEST_F(CudaDeviceTest, ErrorsSayWhatWasTried) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  struct Case {
    const char* what;
    absl::Status status;
    absl::StatusCode code;
    const char* text;
  };
  const auto module = (*device)->LoadModule(kObject);
  ASSERT_TRUE(module.ok());
  const Case cases[] = {
      {"other target", (*device)->LoadModule("fake-object sm_80\nadd_one\n").status(),
       absl::StatusCode::kFailedPrecondition, "the object is not for this device and driver"},
      {"garbage", (*device)->LoadModule("garbage").status(), absl::StatusCode::kFailedPrecondition,
       "load a code object of 7 bytes on Fake H200"},
      {"no such kernel", (*module)->GetKernel("nothing", 0).status(), absl::StatusCode::kNotFound,
       "find kernel nothing"},
      {"too much shared memory", (*module)->GetKernel("add_one", 300000).status(),
       absl::StatusCode::kInvalidArgument, "300000 bytes of shared memory"},
      {"out of memory", (*device)->Allocate(int64_t{1} << 40).status(),
       absl::StatusCode::kResourceExhausted, "allocate 1099511627776 bytes"},
      {"no such device", Open(3).status(), absl::StatusCode::kNotFound,
       "there is no CUDA device 3; this machine has 1"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(c.status.code(), c.code) << c.what << ": " << c.status;
    EXPECT_THAT(std::string(c.status.message()), HasSubstr(c.text)) << c.what;
  }
}

TEST_F(CudaDeviceTest, KnowsACapture) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  for (const auto& [state, capturing] : {std::pair<int, bool>{0, false}, {1, true}, {906, true}}) {
    control_->capturing = state;
    const absl::StatusOr<bool> answer = (*device)->IsCapturing(nullptr);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, capturing) << state;
  }
}

TEST_F(CudaDeviceTest, AllocatesNothing) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const absl::StatusOr<DevicePointer> nothing = (*device)->Allocate(0);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_TRUE((*device)->Fill(*nothing, 0, 0, nullptr).ok());
  (*device)->Free(*nothing);
}

TEST_F(CudaDeviceTest, TensorMapsFollowTheArgument) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  Argument q;
  q.name = "q";
  q.dtype = DType::kBF16;
  q.shape = {1, 32, 1000, 128};
  q.strides = {4096000, 128, 4096, 1};  // [B, S, H, D]; the batch of one may have any stride
  alignas(64) uint64_t map[16] = {};
  alignas(16) char base[16];
  const TensorMap description{"q_map", 0, {64, 128, 1, 1}, 128};
  ASSERT_TRUE((*device)->EncodeTensorMap(description, q, base, map).ok());
  EXPECT_EQ(map[0], reinterpret_cast<uintptr_t>(base));
  EXPECT_EQ(map[2], 128u);
  EXPECT_EQ(map[3], 1000u);
  EXPECT_EQ(map[4], 32u);
  constexpr uint64_t kStepOfOne = uint64_t{1} << 32;
  EXPECT_EQ(map[7], 64u + kStepOfOne);

  TensorMap interleaved = description;
  interleaved.interleave = true;
  ASSERT_TRUE((*device)->EncodeTensorMap(interleaved, q, base, map).ok());
  EXPECT_EQ(map[3], 2u);
  EXPECT_EQ(map[4], 999u);
  EXPECT_EQ(map[5], 32u);
  EXPECT_EQ(map[8], 2u + kStepOfOne);
  EXPECT_EQ(map[9], 128u + 4 * kStepOfOne);
  EXPECT_EQ(map[10], 1u + kStepOfOne);
  Argument odd_rows = q;
  odd_rows.shape[2] = 999;

  struct Case {
    const char* text;
    Argument argument;
    TensorMap description;
    void* base;
  };
  Argument odd = q;
  odd.strides[2] = 4097;
  Argument gaps = q;
  gaps.strides[3] = 2;
  const Case cases[] = {
      {"its base is not 16-byte aligned", q, description, base + 2},
      {"no positive multiple of 16", odd, description, base},
      {"its last dimension is not contiguous", gaps, description, base},
      {"1 to 5 and equal numbers", q, {"q_map", 0, {64, 128}, 128}, base},
      {"an even number of rows", odd_rows, interleaved, base},
      {"swizzle of 48 bytes", q, {"q_map", 0, {64, 128, 1, 1}, 48}, base},
  };
  for (const Case& c : cases) {
    const absl::Status status = (*device)->EncodeTensorMap(c.description, c.argument, c.base, map);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
}

TEST(CudaDriverTest, AMachineWithoutADriverSaysSo) {
  const auto driver = CudaDriver::Load("libwhet-has-no-such-driver.so");
  EXPECT_TRUE(absl::IsUnavailable(driver.status())) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("install the NVIDIA driver"));
}

TEST(CudaDriverTest, ALibraryThatIsNoDriverSaysWhatIsMissing) {
  const auto driver = CudaDriver::Load("libm.so.6");
  EXPECT_TRUE(absl::IsUnavailable(driver.status())) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("it has no cuInit"));
}

}  // namespace
}  // namespace whet
