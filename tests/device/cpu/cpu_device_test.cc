#include "src/device/cpu/cpu_device.h"

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/device/argument_pack.h"
#include "tests/support/arguments.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

Argument Tensor(const char* name) {
  return TensorArgument(name, Direction::kInOut, DType::kF32, {64});
}

class CpuDeviceTest : public testing::Test {
 protected:
  CpuDeviceTest()
      : device_(OpenCpuDevice(0, {.cpu_threads = 3}).value()),
        module_(
            device_->LoadModule(ReadRunfile("tests/support/kernels/libtest_kernels.so")).value()) {}

  Kernel Get(const std::string& entry, const std::vector<Argument>& arguments) {
    Kernel kernel = module_->GetKernel(entry, 0).value();
    kernel.SetParameters(arguments);
    return kernel;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Module> module_;
};

const std::vector<Argument> kScale = {Tensor("x"), Tensor("y"), ScalarArgument("n", DType::kI64),
                                      ScalarArgument("factor", DType::kF32)};

void PackScale(ArgumentPack& pack, float* x, float* y, int64_t n, float factor) {
  pack.SetPointer(0, x);
  pack.SetPointer(1, y);
  pack.SetScalar(2, &n, 8);
  pack.SetScalar(3, &factor, 4);
}

TEST_F(CpuDeviceTest, LaunchOnTheNullStreamIsDoneOnReturn) {
  std::vector<float> x(1000, 2.0f), y(1000, 0.0f);
  ArgumentPack pack(kScale, {});
  PackScale(pack, x.data(), y.data(), 1000, 3.0f);
  ASSERT_TRUE(
      device_->Launch(Get("TestScale", kScale), {.grid = {16, 1, 1}}, pack.params(), nullptr).ok());
  EXPECT_EQ(y, std::vector<float>(1000, 6.0f));
}

TEST_F(CpuDeviceTest, EmptyGridLaunchesNothing) {
  void* params[] = {nullptr};
  EXPECT_TRUE(
      device_->Launch(Get("TestCount", {Tensor("count")}), {.grid = {0, 1, 1}}, params, nullptr)
          .ok());
}

struct GeometryCase {
  const char* name;
  LaunchGeometry geometry;
};

class BadGeometryTest : public CpuDeviceTest, public testing::WithParamInterface<GeometryCase> {};

TEST_P(BadGeometryTest, IsRefusedBeforeAnythingRuns) {
  int32_t count = 0;
  int32_t* pointer = &count;
  void* params[] = {&pointer};
  const absl::Status status =
      device_->Launch(Get("TestCount", {Tensor("count")}), GetParam().geometry, params, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(count, 0);
}

constexpr int64_t kWord = std::numeric_limits<uint32_t>::max();
INSTANTIATE_TEST_SUITE_P(
    Geometries, BadGeometryTest,
    testing::Values(GeometryCase{"Negative", {.grid = {1, -1, 1}}},
                    GeometryCase{"WiderThanAWord", {.grid = {kWord + 1, 1, 1}}},
                    GeometryCase{"ProductOverflows", {.grid = {kWord, kWord, kWord}}},
                    GeometryCase{"NegativeShared", {.shared_bytes = -1}},
                    GeometryCase{"TooMuchShared", {.shared_bytes = int64_t{1} << 40}}),
    [](const auto& param) { return param.param.name; });

TEST_F(CpuDeviceTest, CreatedStreamTakesACopyOfTheParametersAndKeepsOrder) {
  StreamHandle stream = device_->CreateStream().value();
  std::atomic<int32_t> open{0}, passed{0};
  const std::vector<Argument> gate_arguments = {Tensor("open"), Tensor("passed")};
  ArgumentPack gate(gate_arguments, {});
  gate.SetPointer(0, &open);
  gate.SetPointer(1, &passed);
  ASSERT_TRUE(device_->Launch(Get("TestGate", gate_arguments), {}, gate.params(), stream).ok());

  std::vector<float> x(64, 1.0f), y(64, 0.0f), z(64, 0.0f);
  ArgumentPack pack(kScale, {});
  PackScale(pack, x.data(), y.data(), 64, 5.0f);
  ASSERT_TRUE(device_->Launch(Get("TestScale", kScale), {}, pack.params(), stream).ok());
  // Overwritten while the first launch still waits behind the gate.
  PackScale(pack, y.data(), z.data(), 64, 2.0f);
  ASSERT_TRUE(device_->Launch(Get("TestScale", kScale), {}, pack.params(), stream).ok());
  PackScale(pack, nullptr, nullptr, 0, 0.0f);
  EXPECT_EQ(passed, 0);
  EXPECT_EQ(y[0], 0.0f);

  open = 1;
  open.notify_all();
  ASSERT_TRUE(device_->Synchronize(stream).ok());
  EXPECT_EQ(passed, 1);
  EXPECT_EQ(y, std::vector<float>(64, 5.0f));
  EXPECT_EQ(z, std::vector<float>(64, 10.0f));
  device_->DestroyStream(stream);
}

TEST_F(CpuDeviceTest, KernelOfUnknownParametersRunsInStreamOrderAndIsDoneOnReturn) {
  StreamHandle stream = device_->CreateStream().value();
  std::vector<float> x(64, 1.0f), y(64, 0.0f);
  ASSERT_TRUE(device_->Fill(x.data(), 0, 256, stream).ok());
  ArgumentPack pack(kScale, {});
  PackScale(pack, x.data(), y.data(), 64, 5.0f);
  y[0] = 7.0f;
  ASSERT_TRUE(
      device_->Launch(module_->GetKernel("TestScale", 0).value(), {}, pack.params(), stream).ok());
  EXPECT_EQ(y, std::vector<float>(64, 0.0f));
  device_->DestroyStream(stream);
}

TEST_F(CpuDeviceTest, SharedMemoryOfMoreThanOneKernel) {
  std::vector<int64_t> sums(40, 0);
  int64_t* pointer = sums.data();
  void* params[] = {&pointer};
  const Kernel kernel = module_->GetKernel("TestShared", 4096).value();
  ASSERT_TRUE(
      device_->Launch(kernel, {.grid = {40, 1, 1}, .shared_bytes = 4096}, params, nullptr).ok());
  EXPECT_EQ(sums, std::vector<int64_t>(40, 512));
}

TEST_F(CpuDeviceTest, GetKernelErrors) {
  const absl::Status missing = module_->GetKernel("NoSuchKernel", 0).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("NoSuchKernel"), absl::string_view::npos);
  EXPECT_EQ(module_->GetKernel("TestScale", -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(module_->GetKernel("TestScale", int64_t{1} << 40).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, TwoLoadsOfTheSameBytesAreTwoModules) {
  const std::string object = ReadRunfile("tests/support/kernels/libtest_kernels.so");
  int32_t count = 0;
  int32_t* pointer = &count;
  void* params[] = {&pointer};
  // Loading and unloading again and again takes the same descriptor numbers again and again.
  for (int i = 0; i < 20; ++i) {
    std::unique_ptr<Module> fresh = device_->LoadModule(object).value();
    for (int call = 1; call <= 3; ++call) {
      ASSERT_TRUE(
          device_->Launch(fresh->GetKernel("TestCount", 0).value(), {}, params, nullptr).ok());
      ASSERT_EQ(count, call) << "module " << i;
    }
  }
}

TEST_F(CpuDeviceTest, WhatIsNoCodeObjectIsRefused) {
  EXPECT_EQ(device_->LoadModule("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->LoadModule("garbage").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->LoadModule(std::string(4096, '\0')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, MemoryIsAlignedAndMovable) {
  for (int64_t bytes : {0, 1, 255, 4097}) {
    const absl::StatusOr<DevicePointer> memory = device_->Allocate(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 256, 0u);
    device_->Free(*memory);
  }
  EXPECT_EQ(device_->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_GT(device_->FreeMemory().value(), 0);

  StreamHandle stream = device_->CreateStream().value();
  for (StreamHandle s : {static_cast<StreamHandle>(nullptr), stream}) {
    std::vector<uint8_t> a(100), b(100), c(100);
    ASSERT_TRUE(device_->Fill(a.data(), 0xA5, 100, s).ok());
    ASSERT_TRUE(device_->Copy(b.data(), a.data(), 100, s).ok());
    ASSERT_TRUE(device_->CopyToHost(c.data(), b.data(), 100, s).ok());
    EXPECT_EQ(c, std::vector<uint8_t>(100, 0xA5));
    EXPECT_EQ(device_->Copy(b.data(), a.data(), -1, s).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(device_->Fill(b.data(), 0, -1, s).code(), absl::StatusCode::kInvalidArgument);
  }
  device_->DestroyStream(stream);
}

TEST_F(CpuDeviceTest, EventsMeasureTheStreamAndMayBeDestroyedEarly) {
  StreamHandle stream = device_->CreateStream().value();
  EventHandle begin = device_->CreateEvent().value();
  EventHandle end = device_->CreateEvent().value();
  EXPECT_EQ(device_->ElapsedNanoseconds(begin, end).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::vector<uint8_t> bytes(1 << 20);
  for (StreamHandle s : {static_cast<StreamHandle>(nullptr), stream}) {
    ASSERT_TRUE(device_->Record(begin, s).ok());
    ASSERT_TRUE(device_->Fill(bytes.data(), 1, 1 << 20, s).ok());
    ASSERT_TRUE(device_->Record(end, s).ok());
    const absl::StatusOr<int64_t> elapsed = device_->ElapsedNanoseconds(begin, end);
    ASSERT_TRUE(elapsed.ok());
    EXPECT_GT(*elapsed, 0);
  }

  std::atomic<int32_t> open{0}, passed{0};
  const std::vector<Argument> gate_arguments = {Tensor("open"), Tensor("passed")};
  ArgumentPack gate(gate_arguments, {});
  gate.SetPointer(0, &open);
  gate.SetPointer(1, &passed);
  ASSERT_TRUE(device_->Launch(Get("TestGate", gate_arguments), {}, gate.params(), stream).ok());
  ASSERT_TRUE(device_->Record(begin, stream).ok());
  device_->DestroyEvent(begin);
  device_->DestroyEvent(end);
  open = 1;
  open.notify_all();
  EXPECT_TRUE(device_->Synchronize(stream).ok());
  device_->DestroyStream(stream);
}

TEST_F(CpuDeviceTest, IdentityAndOptionalParts) {
  EXPECT_EQ(device_->identity().compute_units, 3);
  EXPECT_EQ(device_->identity().target.platform, Platform::kCpu);
  EXPECT_GT(device_->identity().memory_bytes, 0);
  EXPECT_FALSE(device_->IsCapturing(nullptr).value());
  EXPECT_GT(device_->Telemetry().monotonic_ns, 0);
  EXPECT_EQ(OpenCpuDevice(1, {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReportCpuDevices({.cpu_threads = 5}).devices.at(0).compute_units, 5);
}

}  // namespace
}  // namespace whet
