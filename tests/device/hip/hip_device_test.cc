// The HIP layer over a test double of the runtime, in its HIP 5 and HIP 6 forms, and over the real runtimes of a machine without a GPU.

#include "src/device/hip/hip_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/files.h"
#include "src/device/hip/amdgpu_sensors.h"
#include "src/device/hip/gpu_access.h"
#include "tests/support/fake_gpu/device_session.h"
#include "tests/support/runfile.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr char kObject[] = "fake-object gfx950\nadd_one\nfault\n";

class HipDeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string library = RunfilePath(GetParam());
    absl::StatusOr<std::unique_ptr<const HipRuntime>> hip = HipRuntime::Load(library);
    ASSERT_TRUE(hip.ok()) << hip.status();
    hip_ = *std::move(hip);
    fake_.emplace(library);
    control_ = &fake_->control();
  }
  void TearDown() override { fake_->ExpectNothingLeft(); }

  absl::StatusOr<std::unique_ptr<Device>> Open(int index = 0) {
    return OpenHipDevice(index, *hip_, "/nonexistent");
  }

  std::unique_ptr<const HipRuntime> hip_;
  std::optional<FakeGpu> fake_;
  FakeGpuControl* control_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Versions, HipDeviceTest,
                         ::testing::Values("tests/support/fake_gpu/libfake_hip.so",
                                           "tests/support/fake_gpu/libfake_hip5.so"),
                         [](const auto& version) { return version.index == 0 ? "Hip6" : "Hip5"; });

TEST_P(HipDeviceTest, IdentifiesTheProductWithItsFeatureFlags) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceIdentity& identity = (*device)->identity();
  EXPECT_EQ(identity.target.ToString(), "gfx950:sramecc+:xnack-");
  EXPECT_EQ(identity.product, "gfx Fake MI355X");
  EXPECT_EQ(identity.compute_units, 256);
  EXPECT_EQ(identity.shared_bytes_max, 163840);
  EXPECT_EQ(identity.driver, "HIP runtime 70051831");
  EXPECT_FALSE((*device)->Telemetry().clock_mhz.has_value());
}

TEST_P(HipDeviceTest, RunsAndGivesBackWhatItTook) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device, kObject).ok());
  EXPECT_EQ(control_->launches, 2);
  EXPECT_EQ(control_->last_shared_bytes, 100000u);
}

TEST_P(HipDeviceTest, EveryFailureComesBack) {
  ExpectEveryFailureComesBack(*fake_, [&] {
    const auto device = Open();
    return device.ok() ? UseDevice(**device, kObject) : device.status();
  });
}

TEST_P(HipDeviceTest, LeavesTheThreadsDeviceCurrent) {
  control_->device_count = 2;
  const auto device = Open(1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UseDevice(**device, kObject).ok());
  int current = -1;
  ASSERT_EQ(hip_->hipGetDevice(&current), 0);
  EXPECT_EQ(current, 0);
}

TEST_P(HipDeviceTest, ErrorsSayWhatWasTried) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto module = (*device)->LoadModule(kObject);
  ASSERT_TRUE(module.ok()) << module.status();
  struct Case {
    absl::Status status;
    absl::StatusCode code;
    const char* text;
  };
  const Case cases[] = {
      {(*device)->LoadModule("fake-object gfx90a\nadd_one\n").status(),
       absl::StatusCode::kFailedPrecondition, "xnack or sramecc"},
      {(*module)->GetKernel("nothing", 0).status(), absl::StatusCode::kNotFound,
       "find kernel nothing"},
      {(*device)->Allocate(int64_t{1} << 40).status(), absl::StatusCode::kResourceExhausted,
       "allocate 1099511627776 bytes"},
      {Open(3).status(), absl::StatusCode::kNotFound,
       "there is no HIP device 3; this machine has 1"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(c.status.code(), c.code) << c.status;
    EXPECT_THAT(std::string(c.status.message()), HasSubstr(c.text));
  }
}

TEST_P(HipDeviceTest, AFaultInAKernelIsALostDevice) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  {
    const auto module = (*device)->LoadModule(kObject);
    ASSERT_TRUE(module.ok()) << module.status();
    const auto kernel = (*module)->GetKernel("fault", 0);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE((*device)->Launch(*kernel, LaunchGeometry(), nullptr, nullptr).ok());
    const absl::Status status = (*device)->Synchronize(nullptr);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    control_->sticky_error = 0;
  }
}

TEST_P(HipDeviceTest, KnowsACapture) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  for (const auto& [state, capturing] : {std::pair<int, bool>{0, false}, {1, true}, {906, true}}) {
    control_->capturing = state;
    const absl::StatusOr<bool> answer = (*device)->IsCapturing(nullptr);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, capturing) << state;
  }
}

// The real runtime of Debian, where it is installed: it must say that there is no GPU, and the process must live on.
TEST(HipRuntimeTest, AMachineWithoutAGpuSaysSo) {
  const auto hip = HipRuntime::Get();
  if (hip.ok()) GTEST_SKIP() << "this machine has an AMD GPU";
  EXPECT_TRUE(absl::IsUnavailable(hip.status())) << hip.status();
  EXPECT_THAT(std::string(hip.status().message()), HasSubstr("libamdhip64.so.5"));
  if (hip.status().message().find("libamdhip64.so.5: cannot open") == absl::string_view::npos) {
    EXPECT_THAT(std::string(hip.status().message()), HasSubstr("/dev/kfd"));
  }
}

// The same of ROCm 7.0 and 7.14, which tools/fetch_hiprtc7 fetches beside their hipRTC. hipInit answers 100 there, 101 in HIP 5.
TEST(HipRuntimeTest, Rocm7WithoutAGpuSaysSo) {
  int tried = 0;
  for (const char* variable : {"WHET_TEST_HIPRTC7", "WHET_TEST_HIPRTC70"}) {
    const char* const hiprtc = std::getenv(variable);
    if (hiprtc == nullptr || *hiprtc == '\0') continue;
    const std::string path(hiprtc);
    const std::string library = path.substr(0, path.rfind('/')) + "/libamdhip64.so.7";
    SCOPED_TRACE(library);
    const auto hip = HipRuntime::Load(library);
    if (hip.ok()) GTEST_SKIP() << "this machine has an AMD GPU";
    ++tried;
    EXPECT_TRUE(absl::IsUnavailable(hip.status())) << hip.status();
    EXPECT_THAT(std::string(hip.status().message()), HasSubstr("/dev/kfd"));
    EXPECT_THAT(std::string(hip.status().message()), HasSubstr("find an AMD GPU through"));
  }
  if (tried == 0) GTEST_SKIP() << "SKIPPED: WHET_TEST_HIPRTC7 names no library";
}

TEST(GpuAccessTest, TellsAMissingDriverFromAMissingPermission) {
  const struct {
    std::map<std::string, int> files;  // those that are there, and what opening them gives
    const char* text;
  } cases[] = {
      {{}, "there is no /dev/kfd"},
      {{{"/dev/kfd", EACCES}}, "this user may not open /dev/kfd: add it to the groups render"},
      {{{"/dev/kfd", 0}}, "no /dev/dri/renderD*"},
      {{{"/dev/kfd", 0}, {"/dev/dri/renderD129", EPERM}}, "may not open /dev/dri/renderD129"},
      {{{"/dev/kfd", 0}, {"/dev/dri/renderD128", EACCES}, {"/dev/dri/renderD191", 0}}, "see dmesg"},
  };
  for (const auto& c : cases) {
    const std::string text = ExplainNoGpu([&c](const std::string& path) {
      const auto file = c.files.find(path);
      return file == c.files.end() ? ENOENT : file->second;
    });
    EXPECT_THAT(text, HasSubstr(c.text));
  }
}

TEST(HipRuntimeTest, ALibraryThatIsNoHipSaysWhatIsMissing) {
  const auto hip = HipRuntime::Load("libm.so.6");
  EXPECT_TRUE(absl::IsUnavailable(hip.status())) << hip.status();
  EXPECT_THAT(std::string(hip.status().message()), HasSubstr("it has no hip"));
}

TEST(AmdgpuSensorsTest, ReadsTheDriversFiles) {
  const auto root = TemporaryDirectory::Create("whet-sensors-test");
  ASSERT_TRUE(root.ok()) << root.status();
  const std::string device = root->path() + "/bus/pci/devices/0000:03:00.0";
  const std::string hwmon = device + "/hwmon/hwmon7";
  ASSERT_TRUE(MakeDirectories(hwmon).ok());
  const AmdgpuSensors empty("0000:03:00.0", root->path());
  EXPECT_FALSE(empty.Sample().power_watts.has_value());
  EXPECT_EQ(empty.PowerCapWatts(), 0);
  EXPECT_EQ(empty.Partition(), "");
  for (const auto& [name, text] :
       {std::pair<const char*, const char*>{"/freq1_input", "2100000000\n"},
        {"/power1_average", "745000000\n"},
        {"/power1_cap", "1400000000\n"},
        {"/temp1_input", "41000\n"},
        {"/temp2_input", "62000\n"}}) {
    ASSERT_TRUE(WriteFileAtomically(hwmon + name, text).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(device + "/current_compute_partition", "SPX\n").ok());
  ASSERT_TRUE(WriteFileAtomically(device + "/current_memory_partition", "NPS1\n").ok());
  const AmdgpuSensors sensors("0000:03:00.0", root->path());
  const TelemetrySample sample = sensors.Sample();
  EXPECT_EQ(sample.clock_mhz, 2100);
  EXPECT_EQ(sample.power_watts, 745);
  EXPECT_EQ(sample.temperature_celsius, 62);
  EXPECT_EQ(sensors.PowerCapWatts(), 1400);
  EXPECT_EQ(sensors.Partition(), "SPX/NPS1");
  ASSERT_TRUE(WriteFileAtomically(hwmon + "/freq1_input", "garbage").ok());
  EXPECT_FALSE(sensors.Sample().clock_mhz.has_value());
}

}  // namespace
}  // namespace whet
