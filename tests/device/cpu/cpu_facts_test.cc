#include "src/device/cpu/cpu_facts.h"

#include <string>

#include "gtest/gtest.h"
#include "src/base/files.h"

namespace whet {
namespace {

// A machine made of files.
class FakeRoot {
 public:
  FakeRoot() : directory_(TemporaryDirectory::Create("cpu-facts").value()) {}
  const std::string& path() const { return directory_.path(); }
  void Write(const std::string& name, const std::string& text) {
    const std::string full = JoinPath(path(), name);
    ASSERT_TRUE(MakeDirectories(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(full, text).ok());
  }

 private:
  TemporaryDirectory directory_;
};

TEST(CpuFactsTest, IdentityFromFiles) {
  FakeRoot root;
  root.Write("proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Example 9000\ncpu MHz\t\t: 2300.0\n\n"
             "processor\t: 1\nmodel name\t: Example 9000\ncpu MHz\t\t: 2500.0\n");
  root.Write("proc/meminfo", "MemTotal:       24684096 kB\nMemAvailable:   1024 kB\n");
  root.Write("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index2/level", "2\n");
  root.Write("sys/devices/system/cpu/cpu0/cache/index2/size", "2048K\n");
  root.Write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "150000000\n");
  root.Write("sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw", "150000000\n");
  root.Write("sys/class/powercap/intel-rapl:0:0/constraint_0_power_limit_uw", "70000000\n");
  const Target target{.platform = Platform::kCpu, .architecture = "x86-64", .features = {"avx2"}};
  const DeviceIdentity identity = ReadCpuIdentity(root.path(), target, 7);
  EXPECT_EQ(identity.target, target);
  EXPECT_EQ(identity.product, "Example 9000");
  EXPECT_EQ(identity.compute_units, 7);
  EXPECT_EQ(identity.memory_bytes, int64_t{24684096} * 1024);
  EXPECT_EQ(identity.driver, "Linux 6.1.0-13-amd64");
  EXPECT_EQ(identity.l2_bytes, 2 << 20);
  EXPECT_EQ(identity.power_cap_watts, 300);  // packages, not their parts
  EXPECT_EQ(ReadAvailableMemory(root.path()), 1 << 20);
  EXPECT_EQ(CpuTelemetry(root.path()).Sample().clock_mhz, 2400.0);
}

TEST(CpuFactsTest, NothingReadableIsEmptyAndNoError) {
  FakeRoot root;
  const DeviceIdentity identity = ReadCpuIdentity(root.path(), Target{}, 1);
  EXPECT_EQ(identity.product, "unknown processor");
  EXPECT_EQ(identity.memory_bytes, 0);
  EXPECT_EQ(identity.power_cap_watts, 0);
  EXPECT_EQ(ReadAvailableMemory(root.path()), -1);
  const TelemetrySample sample = CpuTelemetry(root.path()).Sample();
  EXPECT_GT(sample.monotonic_ns, 0);
  EXPECT_FALSE(sample.clock_mhz.has_value());
  EXPECT_FALSE(sample.power_watts.has_value());
  EXPECT_FALSE(sample.temperature_celsius.has_value());
}

TEST(CpuFactsTest, ControlGroupBoundsMemory) {
  FakeRoot root;
  root.Write("proc/meminfo", "MemAvailable:   8192 kB\n");
  root.Write("sys/fs/cgroup/memory.max", "max\n");
  root.Write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(ReadAvailableMemory(root.path()), 8 << 20);
  root.Write("sys/fs/cgroup/memory.max", "5000\n");
  EXPECT_EQ(ReadAvailableMemory(root.path()), 4000);
  root.Write("sys/fs/cgroup/memory.current", "6000\n");
  EXPECT_EQ(ReadAvailableMemory(root.path()), 0);
}

TEST(CpuFactsTest, PowerIsTheMeanSinceTheLastSampleAndSurvivesTheWrap) {
  FakeRoot root;
  const std::string package = "sys/class/powercap/intel-rapl:0/";
  root.Write(package + "max_energy_range_uj", "1000000000000\n");
  root.Write(package + "energy_uj", "999999999000\n");
  CpuTelemetry telemetry(root.path());
  const TelemetrySample first = telemetry.Sample();
  EXPECT_FALSE(first.power_watts.has_value());
  root.Write(package + "energy_uj", "2999000\n");  // 3 J later, past the wrap
  const TelemetrySample second = telemetry.Sample();
  ASSERT_TRUE(second.power_watts.has_value());
  const double seconds = static_cast<double>(second.monotonic_ns - first.monotonic_ns) / 1e9;
  EXPECT_NEAR(*second.power_watts * seconds, 3.0, 1e-6);
}

TEST(CpuFactsTest, HottestCoreAndMeanFrequency) {
  FakeRoot root;
  root.Write("sys/class/hwmon/hwmon0/name", "acpitz\n");
  root.Write("sys/class/hwmon/hwmon0/temp1_input", "99000\n");
  root.Write("sys/class/hwmon/hwmon1/name", "coretemp\n");
  root.Write("sys/class/hwmon/hwmon1/temp1_input", "41000\n");
  root.Write("sys/class/hwmon/hwmon1/temp2_input", "47500\n");
  root.Write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n");
  root.Write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2000000\n");
  CpuTelemetry telemetry(root.path());
  const TelemetrySample sample = telemetry.Sample();
  EXPECT_EQ(sample.temperature_celsius, 47.5);
  EXPECT_EQ(sample.clock_mhz, 2500.0);
}

}  // namespace
}  // namespace whet
