#include "src/base/cgroup.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/files.h"

namespace whet {
namespace {

constexpr char kMountV2[] = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr char kMountV1[] =
    "29 24 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
constexpr char kMountV1Container[] =
    "30 24 0:26 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
constexpr char kCpuDir[] = "/sys/fs/cgroup/cpu,cpuacct";

struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;
  int limit;
};

std::vector<Case> Cases() {
  const std::string v1 = kCpuDir;
  return {
      {"nothing at all", {}, 0},
      {"version 2, no quota",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/a\n"},
        {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}},
       0},
      {"version 2, rounded up",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/a\n"},
        {"/sys/fs/cgroup/a/cpu.max", "150000 100000\n"}},
       2},
      {"version 2, the parent is tighter",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
        {"/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"}},
       3},
      {"version 2, in a container's own namespace",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/\n"},
        {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}},
       4},
      {"version 2, a group outside of the namespace",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/../other\n"},
        {"/sys/fs/cgroup/cpu.max", "500000 100000\n"}},
       5},
      {"version 2, nonsense",
       {{"/proc/self/mountinfo", kMountV2},
        {"/proc/self/cgroup", "0::/a\n"},
        {"/sys/fs/cgroup/a/cpu.max", "-1 0 what\n"}},
       0},
      {"version 1",
       {{"/proc/self/mountinfo", kMountV1},
        {"/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a\n"},
        {v1 + "/a/cpu.cfs_quota_us", "250000\n"},
        {v1 + "/a/cpu.cfs_period_us", "100000\n"}},
       3},
      {"version 1, no quota",
       {{"/proc/self/mountinfo", kMountV1},
        {"/proc/self/cgroup", "4:cpu,cpuacct:/a\n"},
        {v1 + "/a/cpu.cfs_quota_us", "-1\n"},
        {v1 + "/a/cpu.cfs_period_us", "100000\n"}},
       0},
      {"version 1, a container sees only its own group",
       {{"/proc/self/mountinfo", kMountV1Container},
        {"/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n"},
        {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"},
        {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
       1},
      {"both, the tighter one counts",
       {{"/proc/self/mountinfo",
         std::string(kMountV1) + "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n"},
        {"/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/a\n"},
        {v1 + "/a/cpu.cfs_quota_us", "250000\n"},
        {v1 + "/a/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/unified/a/cpu.max", "200000 100000\n"}},
       2},
  };
}

TEST(CgroupTest, FindsTheTightestQuota) {
  for (const Case& c : Cases()) {
    const absl::StatusOr<TemporaryDirectory> root = TemporaryDirectory::Create("cgroup_test");
    ASSERT_TRUE(root.ok()) << root.status();
    for (const auto& [path, text] : c.files) {
      const std::string whole = root->path() + path;
      ASSERT_TRUE(MakeDirectories(whole.substr(0, whole.rfind('/'))).ok());
      ASSERT_TRUE(WriteFileAtomically(whole, text).ok());
    }
    EXPECT_EQ(CgroupProcessorLimit(root->path()), c.limit) << c.name;
  }
}

TEST(CgroupTest, ReadsTheRealMachine) { EXPECT_GE(CgroupProcessorLimit("/"), 0); }

}  // namespace
}  // namespace whet
