// The tuner on the simulated GPU: small, seeded editions of what bench/tune/tuner_comparison.cc
// measures at length.

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "src/tune/tuner.h"
#include "tests/support/simulated_space.h"

namespace whet {
namespace {

struct ScenarioCase {
  const char* name;
  SimulationOptions gpu;
};

class SimulationTest : public testing::TestWithParam<ScenarioCase> {};

// What timing every variant at its steady state would take: 1 s of soak and 0.2 s of timing.
constexpr double kExhaustiveNs = 1.2e9;

TEST_P(SimulationTest, PicksWithinOnePercentInAShareOfTheTimeAndAgain) {
  constexpr int kSpaces = 24;
  int off = 0, other = 0;
  double busy_ns = 0, exhaustive_ns = 0;
  for (uint64_t seed = 1; seed <= kSpaces; ++seed) {
    std::set<std::string> ties[2];
    std::string winners[2];
    for (uint64_t again : {0, 1}) {
      SpaceOptions options{.variants = seed % 2 == 0 ? 8 : 16,
                           .space_seed = seed,
                           .noise_seed = 100 * seed + again,
                           .gpu = GetParam().gpu};
      SimulatedSpace space(options);
      const absl::StatusOr<TuningResult> r =
          Tune(space.request(), space.device(), space.source(), nullptr);
      ASSERT_TRUE(r.ok()) << r.status();
      off += space.Regret(r->winner) > 0.01;
      EXPECT_LE(space.Regret(r->winner), 0.03) << "seed " << seed;
      busy_ns += static_cast<double>(space.device().busy_ns());
      exhaustive_ns += kExhaustiveNs * space.variants();
      winners[again] = r->winner.id();
      for (const VariantEvidence& e : r->evidence) {
        if (e.tied) ties[again].insert(e.variant.id());
      }
    }
    other += !(winners[0] == winners[1] || ties[0].count(winners[1]) != 0 ||
               ties[1].count(winners[0]) != 0);
  }
  EXPECT_LE(other, 1);
  EXPECT_LE(busy_ns, 0.4 * exhaustive_ns);
  EXPECT_LE(off, 1);  // of 48
}

INSTANTIATE_TEST_SUITE_P(Scenarios, SimulationTest,
                         testing::Values(ScenarioCase{"PowerLimit", {}},
                                         ScenarioCase{"Drift", {.drift_per_second = -0.005}},
                                         ScenarioCase{"Tenants", {.tenants = true}},
                                         ScenarioCase{"Quiet",
                                                      {.launch_noise = 0.001, .wander = 0}}),
                         [](const auto& param) { return param.param.name; });

// Interleaved, the leader is another one than at steady state; the tuner must not fall for it.
TEST(SimulationTest, FrugalVariantWinsAlthoughItLosesByTurns) {
  FakeDevice device;
  device.SetClockLag(absl::Milliseconds(150));
  SimulatedGpu gpu({.seed = 9});
  device.SetTimingModel(&gpu);
  FakeVariants op(device, 1);
  gpu.AddKernel({.boost_ns = 300'000, .watts = 980});  // hungry
  gpu.AddKernel({.boost_ns = 309'000, .watts = 800});  // 3 % slower at one clock
  op.Add({.id = "k:a=1"});
  op.Add({.id = "k:a=2"});
  ASSERT_GT(gpu.SteadyNanoseconds(0), gpu.SteadyNanoseconds(1) * 1.03);
  const absl::StatusOr<TuningResult> r = Tune(op.Request(), device, op, nullptr);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->winner.id(), "k:a=2");
  for (const VariantEvidence& e : r->evidence) {
    EXPECT_FALSE(e.telemetry.empty());
    EXPECT_TRUE(e.telemetry.front().power_watts.has_value());
  }
}

}  // namespace
}  // namespace whet
