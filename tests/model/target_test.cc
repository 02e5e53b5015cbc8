#include "src/model/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace whet {
namespace {

struct Accepted {
  std::string text;
  Platform platform;
  std::string architecture;
  std::string canonical;
};

TEST(TargetTest, AcceptsAndCanonicalises) {
  const std::vector<Accepted> cases = {
      {"gfx950:sramecc+:xnack-", Platform::kHip, "gfx950", "gfx950:sramecc+:xnack-"},
      {"gfx950:xnack-:sramecc+", Platform::kHip, "gfx950", "gfx950:sramecc+:xnack-"},
      {"gfx90a", Platform::kHip, "gfx90a", "gfx90a"},
      {"gfx1100", Platform::kHip, "gfx1100", "gfx1100"},
      {"gfx1010:xnack+", Platform::kHip, "gfx1010", "gfx1010:xnack+"},
      {"gfx9-4-generic:xnack+", Platform::kHip, "gfx9-4-generic", "gfx9-4-generic:xnack+"},
      {"sm_90a", Platform::kCuda, "sm_90a", "sm_90a"},
      {"sm_100f", Platform::kCuda, "sm_100f", "sm_100f"},
      {"x86-64", Platform::kCpu, "x86-64", "x86-64"},
      {"x86-64:fma,avx2,avx512f", Platform::kCpu, "x86-64", "x86-64:avx2,avx512f,fma"},
  };
  for (const Accepted& c : cases) {
    const absl::StatusOr<Target> target = Target::Parse(c.text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->platform, c.platform);
    EXPECT_EQ(target->architecture, c.architecture);
    EXPECT_EQ(target->ToString(), c.canonical);
    EXPECT_EQ(*Target::Parse(target->ToString()), *target);
  }
}

struct Refused {
  std::string text;
  std::string reason;
};

TEST(TargetTest, RefusesAndSaysWhy) {
  const std::vector<Refused> cases = {
      {"", "unknown architecture \"\""},
      {"GFX942", "unknown architecture \"GFX942\""},
      {"gfx", "unknown architecture"},
      {"gfx942 ", "unknown architecture"},
      {"sm90", "unknown architecture"},
      {"sm_90b", "unknown architecture"},
      {"sm_a", "unknown architecture"},
      {"x86_64", "unknown architecture"},
      {"gfx942:sramecc", "needs a + or a -"},
      {"gfx942:", "needs a + or a -"},
      {"gfx942:ecc+", "unknown feature \"ecc+\""},
      {"gfx942:xnack+:xnack-", "xnack is given twice"},
      {"gfx942:xnack+:xnack+", "xnack is given twice"},
      {"gfx1030:xnack+", "gfx1030 has no xnack"},
      {"gfx900:sramecc+", "gfx900 has no sramecc"},
      {"gfx1100:sramecc+", "gfx1100 has no sramecc"},
      {"sm_90a:xnack+", "no feature flags"},
      {"x86-64:sramecc+", "unknown feature \"sramecc+\""},
      {"x86-64:avx2,avx2", "avx2 is given twice"},
      {"x86-64:", "unknown feature \"\""},
      {"x86-64:avx2:fma", "unknown feature"},
  };
  for (const Refused& c : cases) {
    const absl::Status status = Target::Parse(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_NE(status.message().find(c.reason), absl::string_view::npos) << c.text << ": " << status;
  }
}

TEST(TargetTest, HasFeatureIsExact) {
  const Target target = *Target::Parse("gfx942:sramecc+:xnack-");
  EXPECT_TRUE(target.HasFeature("xnack-"));
  EXPECT_FALSE(target.HasFeature("xnack+"));
  EXPECT_FALSE(target.HasFeature("xnack"));
}

TEST(TargetTest, PlatformsHaveFixedNumbersAndNames) {
  EXPECT_EQ(static_cast<int>(Platform::kCpu), 1);
  EXPECT_EQ(static_cast<int>(Platform::kHip), 2);
  EXPECT_EQ(static_cast<int>(Platform::kCuda), 3);
  for (const Platform platform : {Platform::kCpu, Platform::kHip, Platform::kCuda}) {
    EXPECT_EQ(*ParsePlatform(PlatformName(platform)), platform);
  }
  EXPECT_FALSE(ParsePlatform("rocm").ok());
}

TEST(HostCpuTargetTest, IsATargetThatParses) {
  const Target host = HostCpuTarget();
  EXPECT_EQ(*Target::Parse(host.ToString()), host);
  EXPECT_TRUE(std::is_sorted(host.features.begin(), host.features.end()));
}

// The compiler's own idea of the machine, taken independently of ours (it too asks CPUID and XCR0).
TEST(HostCpuTargetTest, AgreesWithTheCompilersRuntime) {
  const Target host = HostCpuTarget();
  EXPECT_EQ(host.HasFeature("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(host.HasFeature("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(host.HasFeature("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(host.HasFeature("avx512bw"), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(host.HasFeature("avx512vl"), __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(host.HasFeature("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(host.HasFeature("avx512bf16"), __builtin_cpu_supports("avx512bf16") != 0);
}

struct Glob {
  std::string pattern;
  std::string text;
  bool matches;
};

TEST(GlobTest, Matches) {
  const std::vector<Glob> cases = {
      {"gfx942", "gfx942", true},
      {"gfx94*", "gfx942", true},
      {"gfx94*", "gfx950", false},
      {"*", "", true},
      {"", "", true},
      {"", "a", false},
      {"?", "", false},
      {"gfx9??", "gfx942", true},
      {"gfx9??", "gfx90", false},
      {"*a*b", "xaxbxb", true},
      {"*a*b", "xaxbx", false},
      {"a*", "ba", false},
      {"**x**", "x", true},
      {"sm_9?*", "sm_90a", true},
      {"*aab", "aaaab", true},
  };
  for (const Glob& c : cases) {
    EXPECT_EQ(MatchesGlob(c.pattern, c.text), c.matches) << c.pattern << " on " << c.text;
  }
  // Exponential in a naive matcher.
  EXPECT_FALSE(MatchesGlob("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a')));
}

}  // namespace
}  // namespace whet
