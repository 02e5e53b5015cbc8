#include "tests/support/fake_gpu/device_session.h"

#include <dlfcn.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace whet {
namespace {

// Whether `symbol` gives something back or changes what is current: when that itself fails, something stays.
bool GivesBack(const std::string& symbol) {
  for (const char* part : {"Free", "Destroy", "Unload", "Release", "cuCtx", "hipSetDevice"}) {
    if (symbol.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

FakeGpu::FakeGpu(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  control_ = reinterpret_cast<FakeGpuControl* (*)()>(dlsym(handle, "fake_gpu_control"))();
  reset_ = reinterpret_cast<void (*)()>(dlsym(handle, "fake_gpu_reset"));
  reset_();
}

void FakeGpu::ExpectNothingLeft() const {
  EXPECT_EQ(control_->live_allocations, 0);
  EXPECT_EQ(control_->live_modules, 0);
  EXPECT_EQ(control_->live_streams, 0);
  EXPECT_EQ(control_->live_events, 0);
  EXPECT_EQ(control_->primary_context_references, 0);
}

absl::Status UseDevice(Device& device, const std::string& object) {
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
    absl::StatusOr<std::unique_ptr<Module>> loaded = device.LoadModule(object);
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
    for (int i = 0; i < 2; ++i) {
      if (absl::Status s = device.Launch(*kernel, geometry, params, *stream); !s.ok()) return s;
    }
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

void ExpectEveryFailureComesBack(const FakeGpu& fake, const std::function<absl::Status()>& use) {
  for (const bool persistently : {false, true}) {
    int failures = 0;
    for (int64_t n = 1;; ++n) {
      ASSERT_LT(n, 1000) << "the fault never stopped firing";
      fake.Reset();
      FakeGpuControl& control = fake.control();
      control.fail_symbol = "*";
      control.fail_at_call = n;
      control.fail_persistently = persistently;
      control.fail_with = 2;
      const absl::Status status = use();
      if (!status.ok()) {
        ++failures;
        EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("cannot ")) << "call " << n;
      }
      if (control.calls < n) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      if (!persistently && !GivesBack(control.failed_symbol)) {
        SCOPED_TRACE(control.failed_symbol);
        fake.ExpectNothingLeft();
      }
    }
    EXPECT_GT(failures, 20) << "persistently " << persistently;
  }
  fake.Reset();
}

}  // namespace whet
