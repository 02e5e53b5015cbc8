#include "src/device/cpu/cpu_facts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/files.h"
#include "src/device/cpu/cpu_event.h"
#include "src/device/cpu/cpu_limits.h"

namespace whet {
namespace {

constexpr int64_t kFactBytes = 4 << 20;  // /proc/cpuinfo of a machine with 512 threads is 1 MB

std::string Text(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kFactBytes);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

std::optional<double> Number(const std::string& path) {
  double value = 0;
  if (!absl::SimpleAtod(Text(path), &value)) return std::nullopt;
  return value;
}

std::vector<std::string> Entries(const std::string& directory) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

// "model name\t: Intel..." -> every value of `key`, in order.
std::vector<std::string> ValuesOf(absl::string_view text, absl::string_view key) {
  std::vector<std::string> values;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key) {
      values.emplace_back(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return values;
}

// "MemTotal:  24684096 kB"
int64_t MemoryInfo(const std::string& root, absl::string_view key) {
  for (const std::string& value : ValuesOf(Text(JoinPath(root, "proc/meminfo")), key)) {
    int64_t kilobytes = 0;
    if (absl::SimpleAtoi(absl::StripSuffix(value, " kB"), &kilobytes)) return kilobytes * 1024;
  }
  return -1;
}

// "2048K", "260M"
int64_t SizeText(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "K")) unit = 1 << 10;
  if (absl::ConsumeSuffix(&text, "M")) unit = 1 << 20;
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value) ? value * unit : 0;
}

// The package domains, "intel-rapl:0"; "intel-rapl:0:1" is a part of one and would count twice.
std::vector<std::string> PowerPackages(const std::string& root) {
  std::vector<std::string> packages;
  const std::string directory = JoinPath(root, "sys/class/powercap");
  for (const std::string& name : Entries(directory)) {
    if (!absl::StartsWith(name, "intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) {
      continue;
    }
    packages.push_back(JoinPath(directory, name));
  }
  return packages;
}

}  // namespace

DeviceIdentity ReadCpuIdentity(const std::string& root, Target target, int threads) {
  DeviceIdentity identity;
  identity.target = std::move(target);
  const std::string cpuinfo = Text(JoinPath(root, "proc/cpuinfo"));
  const std::vector<std::string> models = ValuesOf(cpuinfo, "model name");
  identity.product = models.empty() ? "unknown processor" : models.front();
  identity.compute_units = threads;
  identity.memory_bytes = std::max<int64_t>(0, MemoryInfo(root, "MemTotal"));
  for (const std::string& package : PowerPackages(root)) {
    identity.power_cap_watts += static_cast<int64_t>(
        Number(JoinPath(package, "constraint_0_power_limit_uw")).value_or(0) / 1e6);
  }
  const std::string release = Text(JoinPath(root, "proc/sys/kernel/osrelease"));
  identity.driver = release.empty() ? "" : absl::StrCat("Linux ", release);
  const std::string caches = JoinPath(root, "sys/devices/system/cpu/cpu0/cache");
  for (const std::string& index : Entries(caches)) {
    const std::string cache = JoinPath(caches, index);
    if (Text(JoinPath(cache, "level")) == "2") {
      identity.l2_bytes = SizeText(Text(JoinPath(cache, "size")));
    }
  }
  identity.shared_bytes_max = kCpuSharedBytesMax;
  return identity;
}

int64_t ReadAvailableMemory(const std::string& root) {
  int64_t available = MemoryInfo(root, "MemAvailable");
  const std::optional<double> limit = Number(JoinPath(root, "sys/fs/cgroup/memory.max"));
  const std::optional<double> used = Number(JoinPath(root, "sys/fs/cgroup/memory.current"));
  if (limit.has_value() && used.has_value()) {
    const int64_t left = std::max<int64_t>(0, static_cast<int64_t>(*limit - *used));
    available = available < 0 ? left : std::min(available, left);
  }
  return available;
}

CpuTelemetry::CpuTelemetry(std::string root) : root_(std::move(root)) {
  const std::string sensors = JoinPath(root_, "sys/class/hwmon");
  for (const std::string& sensor : Entries(sensors)) {
    const std::string directory = JoinPath(sensors, sensor);
    const std::string name = Text(JoinPath(directory, "name"));
    if (name != "coretemp" && name != "k10temp" && name != "zenpower") continue;
    for (const std::string& entry : Entries(directory)) {
      if (absl::StartsWith(entry, "temp") && absl::EndsWith(entry, "_input")) {
        temperature_paths_.push_back(JoinPath(directory, entry));
      }
    }
  }
  const std::string cpus = JoinPath(root_, "sys/devices/system/cpu");
  for (const std::string& cpu : Entries(cpus)) {
    const std::string path = JoinPath(JoinPath(cpus, cpu), "cpufreq/scaling_cur_freq");
    if (absl::StartsWith(cpu, "cpu") && IsRegularFile(path)) clock_paths_.push_back(path);
  }
  MutexLock lock(mutex_);
  for (const std::string& package : PowerPackages(root_)) {
    energy_.push_back({.path = JoinPath(package, "energy_uj"),
                       .range_uj = Number(JoinPath(package, "max_energy_range_uj")).value_or(0)});
  }
}

std::optional<double> CpuTelemetry::Clock() const {
  double sum = 0;
  int count = 0;
  for (const std::string& path : clock_paths_) {
    if (const std::optional<double> khz = Number(path)) sum += *khz / 1e3, ++count;
  }
  if (count == 0) {
    for (const std::string& mhz : ValuesOf(Text(JoinPath(root_, "proc/cpuinfo")), "cpu MHz")) {
      double value = 0;
      if (absl::SimpleAtod(mhz, &value)) sum += value, ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

std::optional<double> CpuTelemetry::Temperature() const {
  std::optional<double> hottest;
  for (const std::string& path : temperature_paths_) {
    const std::optional<double> millidegrees = Number(path);
    if (millidegrees.has_value()) {
      hottest = std::max(hottest.value_or(*millidegrees / 1e3), *millidegrees / 1e3);
    }
  }
  return hottest;
}

std::optional<double> CpuTelemetry::Power(int64_t now_ns) {
  MutexLock lock(mutex_);
  double used_uj = 0;
  bool known = !energy_.empty() && last_ns_ != 0 && now_ns > last_ns_;
  for (EnergyCounter& counter : energy_) {
    const std::optional<double> now_uj = Number(counter.path);
    if (!now_uj.has_value() || counter.last_uj < 0) {
      known = false;
    } else {
      used_uj += *now_uj - counter.last_uj + (*now_uj < counter.last_uj ? counter.range_uj : 0);
    }
    counter.last_uj = now_uj.value_or(-1);
  }
  const double elapsed_ns = static_cast<double>(now_ns - last_ns_);
  last_ns_ = now_ns;
  if (!known) return std::nullopt;
  return used_uj * 1e3 / elapsed_ns;
}

TelemetrySample CpuTelemetry::Sample() {
  TelemetrySample sample;
  sample.monotonic_ns = CpuNowNanoseconds();
  sample.clock_mhz = Clock();
  sample.temperature_celsius = Temperature();
  sample.power_watts = Power(sample.monotonic_ns);
  return sample;
}

}  // namespace whet
