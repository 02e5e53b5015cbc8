#include "src/base/cgroup.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace whet {
namespace {

// Where a hierarchy is mounted, and which of its groups is seen at the mount point.
struct CgroupMount {
  std::string mount_point;
  std::string group_root;
};

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

bool ListHas(absl::string_view comma_list, absl::string_view item) {
  for (const absl::string_view piece : absl::StrSplit(comma_list, ',')) {
    if (piece == item) return true;
  }
  return false;
}

// The mount of the version 2 hierarchy, or of the version 1 hierarchy that holds the cpu
// controller.
std::optional<CgroupMount> FindMount(const std::vector<std::string>& mountinfo, bool version2) {
  for (const std::string& line : mountinfo) {
    // "36 25 0:32 /group /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct"
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> left = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(halves.second, ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool fits =
        version2 ? right[0] == "cgroup2" : right[0] == "cgroup" && ListHas(right[2], "cpu");
    if (fits) {
      return CgroupMount{.mount_point = std::string(left[4]), .group_root = std::string(left[3])};
    }
  }
  return std::nullopt;
}

// The path of this process's group in the hierarchy: "0::/x" or "4:cpu,cpuacct:/x".
std::optional<std::string> FindGroup(const std::vector<std::string>& cgroups, bool version2) {
  for (const std::string& line : cgroups) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (version2 ? parts[0] == "0" && parts[1].empty() : ListHas(parts[1], "cpu")) {
      return std::string(parts[2]);
    }
  }
  return std::nullopt;
}

int ProcessorsOf(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  const int64_t processors = quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0);
  return processors > 1 << 20 ? 0 : static_cast<int>(processors);
}

int64_t ReadNumber(const std::string& path) {
  const std::vector<std::string> lines = ReadLines(path);
  int64_t value = 0;
  return !lines.empty() && absl::SimpleAtoi(lines[0], &value) ? value : 0;
}

// The quota of one group's directory, 0 when it has none.
int DirectoryLimit(const std::string& directory, bool version2) {
  if (!version2) {
    return ProcessorsOf(ReadNumber(absl::StrCat(directory, "/cpu.cfs_quota_us")),
                        ReadNumber(absl::StrCat(directory, "/cpu.cfs_period_us")));
  }
  const std::vector<std::string> lines = ReadLines(absl::StrCat(directory, "/cpu.max"));
  if (lines.empty()) return 0;
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');  // "max 100000"
  int64_t quota_us = 0;
  int64_t period_us = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota_us) ||
      !absl::SimpleAtoi(words[1], &period_us)) {
    return 0;
  }
  return ProcessorsOf(quota_us, period_us);
}

int HierarchyLimit(const std::string& root, bool version2) {
  const std::optional<CgroupMount> mount =
      FindMount(ReadLines(absl::StrCat(root, "/proc/self/mountinfo")), version2);
  const std::optional<std::string> group =
      FindGroup(ReadLines(absl::StrCat(root, "/proc/self/cgroup")), version2);
  if (!mount.has_value() || !group.has_value()) return 0;
  // Inside a container the group may be named as the host sees it while the container's own group
  // is what is mounted: then the mount point itself is the group.
  absl::string_view below = *group;
  if (mount->group_root != "/" && !absl::ConsumePrefix(&below, mount->group_root)) below = "";
  int limit = 0;
  std::string path(absl::StripSuffix(below, "/"));
  if (absl::StrContains(path, "..")) path.clear();  // outside the mounted part
  while (true) {
    const int here = DirectoryLimit(absl::StrCat(root, mount->mount_point, path), version2);
    if (here > 0 && (limit == 0 || here < limit)) limit = here;
    if (path.empty()) return limit;
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

int CgroupProcessorLimit(absl::string_view root) {
  const std::string base(absl::StripSuffix(root, "/"));
  const int version2 = HierarchyLimit(base, true);
  const int version1 = HierarchyLimit(base, false);
  if (version1 == 0) return version2;
  return version2 == 0 ? version1 : std::min(version1, version2);
}

}  // namespace whet
