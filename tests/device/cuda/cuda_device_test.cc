// The CUDA layer over a test double of the driver: calls in order, contexts given back, errors of every call passed on, nothing leaked.

#include "src/device/cuda/cuda_device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr char kObject[] = "fake-cubin sm_90a\nadd_one\nfault\n";
constexpr char kNoNvml[] = "libwhet-has-no-such-nvml.so";

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string library = RunfilePath("tests/support/fake_cuda/libfake_cuda.so");
    absl::StatusOr<std::unique_ptr<const CudaDriver>> driver = CudaDriver::Load(library);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    control_ = reinterpret_cast<FakeCudaControl* (*)()>(dlsym(handle, "fake_cuda_control"))();
    reset_ = reinterpret_cast<void (*)()>(dlsym(handle, "fake_cuda_reset"));
    reset_();
  }

  void TearDown() override { ExpectNothingLeft(); }

  void ExpectNothingLeft() {
    EXPECT_EQ(control_->live_allocations, 0);
    EXPECT_EQ(control_->live_modules, 0);
    EXPECT_EQ(control_->live_streams, 0);
    EXPECT_EQ(control_->live_events, 0);
    EXPECT_EQ(control_->primary_context_references, 0);
    CuContext current = nullptr;
    driver_->cuCtxGetCurrent(&current);
    EXPECT_EQ(current, nullptr) << "a context was left current";
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(int index = 0) {
    return OpenCudaDevice(index, *driver_, kNoNvml);
  }

  std::unique_ptr<const CudaDriver> driver_;
  FakeCudaControl* control_ = nullptr;
  void (*reset_)() = nullptr;
};

// Whether `symbol` gives something back or changes contexts: when that itself fails, something stays.
bool GivesBack(const std::string& symbol) {
  return symbol.find("Free") != std::string::npos || symbol.find("Destroy") != std::string::npos ||
         symbol.find("Unload") != std::string::npos ||
         symbol.find("Release") != std::string::npos || symbol.find("cuCtx") != std::string::npos;
}

// Everything an application does with a device, stopping at the first error and giving back what it took.
absl::Status UseDevice(Device& device) {
  absl::StatusOr<DevicePointer> x = device.Allocate(3 * sizeof(float));
  if (!x.ok()) return x.status();
  absl::StatusOr<StreamHandle> stream = absl::UnknownError("none");
  absl::StatusOr<EventHandle> begin = absl::UnknownError("none"), end = absl::UnknownError("none");
  std::unique_ptr<Module> module;
  const absl::Status status = [&]() -> absl::Status {
    float host[3] = {1, 2, 3};
    int32_t n = 3;
    stream = device.CreateStream();
    if (!stream.ok()) return stream.status();
    if (absl::Status s = device.CopyFromHost(*x, host, sizeof(host), *stream); !s.ok()) return s;
    absl::StatusOr<std::unique_ptr<Module>> loaded = device.LoadModule(kObject);
    if (!loaded.ok()) return loaded.status();
    module = *std::move(loaded);
    const absl::StatusOr<Kernel> kernel = module->GetKernel("add_one", 100000);
    if (!kernel.ok()) return kernel.status();
    begin = device.CreateEvent();
    if (!begin.ok()) return begin.status();
    end = device.CreateEvent();
    if (!end.ok()) return end.status();
    if (absl::Status s = device.Record(*begin, *stream); !s.ok()) return s;
    LaunchGeometry geometry;
    geometry.grid[0] = 7;
    geometry.block[0] = 128;
    geometry.shared_bytes = 100000;
    void* params[] = {&*x, &n};
    if (absl::Status s = device.Launch(*kernel, geometry, params, *stream); !s.ok()) return s;
    geometry.grid[0] = 8;
    geometry.cluster[0] = 2;
    if (absl::Status s = device.Launch(*kernel, geometry, params, *stream); !s.ok()) return s;
    if (absl::Status s = device.Record(*end, *stream); !s.ok()) return s;
    const absl::StatusOr<int64_t> elapsed = device.ElapsedNanoseconds(*begin, *end);
    if (!elapsed.ok()) return elapsed.status();
    EXPECT_GE(*elapsed, 0);
    const absl::StatusOr<bool> capturing = device.IsCapturing(*stream);
    if (!capturing.ok()) return capturing.status();
    EXPECT_FALSE(*capturing);
    if (absl::Status s = device.CopyToHost(host, *x, sizeof(host), *stream); !s.ok()) return s;
    EXPECT_EQ(host[0], 3);
    EXPECT_EQ(host[2], 5);
    const absl::StatusOr<int64_t> free_bytes = device.FreeMemory();
    if (!free_bytes.ok()) return free_bytes.status();
    EXPECT_GT(*free_bytes, 0);
    return device.Fill(*x, 0, sizeof(host), *stream);
  }();
  module.reset();
  if (begin.ok()) device.DestroyEvent(*begin);
  if (end.ok()) device.DestroyEvent(*end);
  if (stream.ok()) device.DestroyStream(*stream);
  device.Free(*x);
  return status;
}

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

TEST_F(CudaDeviceTest, RunsAndGivesBackWhatItTook) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device).ok());
  EXPECT_EQ(control_->launches, 2);
  EXPECT_EQ(control_->last_grid[0], 8u);
  EXPECT_EQ(control_->last_cluster[0], 2u);
  EXPECT_EQ(control_->last_shared_bytes, 100000u);
}

TEST_F(CudaDeviceTest, LeavesTheCallersContextCurrent) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  int other = 0;
  const auto mine = reinterpret_cast<CuContext>(&other);
  ASSERT_EQ(driver_->cuCtxPushCurrent_v2(mine), 0);
  EXPECT_TRUE(UseDevice(**device).ok());
  CuContext current = nullptr;
  ASSERT_EQ(driver_->cuCtxPopCurrent_v2(&current), 0);
  EXPECT_EQ(current, mine);
}

// Any call may fail, once or from then on: the error comes back, nothing crashes, and after a single failure nothing is leaked.
TEST_F(CudaDeviceTest, EveryFailureComesBack) {
  for (const bool persistently : {false, true}) {
    int failures = 0;
    for (int64_t n = 1;; ++n) {
      ASSERT_LT(n, 1000) << "the fault never stopped firing";
      reset_();
      control_->fail_symbol = "*";
      control_->fail_at_call = n;
      control_->fail_persistently = persistently;
      control_->fail_with = 2;
      absl::Status status;
      {
        const auto device = Open();
        status = device.ok() ? UseDevice(**device) : device.status();
      }
      const bool fired = control_->calls >= n;
      if (!status.ok()) {
        ++failures;
        EXPECT_THAT(std::string(status.message()), HasSubstr("cannot ")) << "call " << n;
      }
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      if (!persistently && !GivesBack(control_->failed_symbol)) {
        SCOPED_TRACE(control_->failed_symbol);
        ExpectNothingLeft();
      }
    }
    EXPECT_GT(failures, 20) << "persistently " << persistently;
    reset_();
  }
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
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
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
      {"other target", (*device)->LoadModule("fake-cubin sm_80\nadd_one\n").status(),
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
  EXPECT_EQ(map[7], 64u);

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
