#include "src/tune/paired_race.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace whet {
namespace {

// Processors as they were traced: a level that stays for tens of launches and differs by tens of
// percent, jitter, and other programs that interrupt some launches.
struct Machine {
  double level_spread = 0.15;  // of the logarithm
  double memory = 0.97;        // of the level, from launch to launch
  double jitter = 0.02;
  double interrupted = 0.02;  // share of the launches
};

// Runs a race over kernels that take `ns` each, all entries in this order.
class Runner {
 public:
  Runner(std::vector<double> ns, const Machine& machine, uint64_t seed)
      : ns_(std::move(ns)), machine_(machine), random_(seed) {}

  Decision Run(PairedRules rules, int incumbent = -1) {
    std::vector<PairedEntry> entries;
    for (size_t i = 0; i < ns_.size(); ++i) {
      entries.push_back(
          {.order = static_cast<int>(i), .incumbent = static_cast<int>(i) == incumbent});
    }
    PairedRace race(std::move(entries), rules);
    while (!race.over()) {
      std::vector<Stopwatch::Sample> samples;
      for (size_t i : race.running()) samples.push_back(Launch(ns_[i]));
      race.EndRound(samples);
    }
    return race.Decide();
  }
  double spent_ns() const { return spent_ns_; }
  double Regret(const Decision& d) const {
    return ns_[d.winner] / *std::min_element(ns_.begin(), ns_.end()) - 1;
  }

 private:
  Stopwatch::Sample Launch(double ns) {
    level_ = machine_.memory * level_ + std::sqrt(1 - machine_.memory * machine_.memory) *
                                            machine_.level_spread * normal_(random_);
    const double work = ns * std::exp(level_ + machine_.jitter * normal_(random_));
    Stopwatch::Sample s{.wall_ns = work, .cpu_ns = 2 * work};
    s.disturbed = uniform_(random_) < machine_.interrupted;
    // The scheduler gives the processors back when it likes.
    if (s.disturbed) s.wall_ns += 4e6 * uniform_(random_);
    spent_ns_ += s.wall_ns;
    return s;
  }

  const std::vector<double> ns_;
  const Machine machine_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double level_ = 0, spent_ns_ = 0;
};

std::vector<double> Spaced(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> ns;
  double at = 3e6;
  for (int i = 0; i < 12; ++i) {
    ns.push_back(at);
    at *= 1.004 + 0.02 * std::uniform_real_distribution<double>()(random);
  }
  std::shuffle(ns.begin(), ns.end(), random);
  return ns;
}

TEST(PairedRaceTest, FindsTheFastestWhateverElseRuns) {
  const struct {
    const char* name;
    Machine machine;
    int most_mistakes;  // of 100 runs, more than 1 % off
  } kCases[] = {
      {"quiet", {.level_spread = 0.01}, 0},
      {"neighbours on the same cores", {}, 1},
      {"another program keeps a processor busy", {.interrupted = 0.9}, 2},
  };
  for (const auto& c : kCases) {
    int mistakes = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      Runner runner(Spaced(seed), c.machine, seed);
      mistakes += runner.Regret(runner.Run({})) > 0.01;
    }
    EXPECT_LE(mistakes, c.most_mistakes) << c.name << ", seeds 1 to 100";
  }
}

TEST(PairedRaceTest, EndsAsSoonAsItIsProven) {
  Runner runner({3.2e6, 3.0e6, 3.3e6}, {.level_spread = 0.01, .jitter = 0.005}, 1);
  const Decision d = runner.Run({});
  EXPECT_EQ(d.winner, 1u);
  EXPECT_TRUE(d.settled);
  EXPECT_FALSE(d.tied[0]);
  EXPECT_NEAR(d.median_ns[0] / d.median_ns[1], 3.2 / 3.0, 0.01);
  EXPECT_LT(runner.spent_ns(), 0.5e9);
}

TEST(PairedRaceTest, OfProvenEqualsTheEarlierWins) {
  Runner runner({3.003e6, 3.0e6, 3.0e6}, {.level_spread = 0.01, .jitter = 0.002}, 2);
  const Decision d = runner.Run({});
  EXPECT_EQ(d.winner, 0u);
  EXPECT_TRUE(d.tied[1]);
}

TEST(PairedRaceTest, AnIncumbentGivesWayToAProvenGainOnly) {
  for (const double other : {0.98, 0.94}) {
    Runner runner({3.0e6, 3.0e6 * other}, {.level_spread = 0.05}, 3);
    const Decision d = runner.Run({}, /*incumbent=*/0);
    EXPECT_EQ(d.winner, other < 0.95 ? 1u : 0u) << other;
    EXPECT_EQ(d.kept_incumbent, other > 0.95) << other;
  }
}

TEST(PairedRaceTest, WhoFailedDoesNotWin) {
  PairedRace race({{.order = 0}, {.order = 1}}, {});
  for (int round = 0; round < 20 && !race.over(); ++round) {
    std::vector<Stopwatch::Sample> samples;
    for (size_t i : race.running()) samples.push_back({.wall_ns = i == 0 ? 1e6 : 2e6});
    race.EndRound(samples);
    if (round == 3) race.Drop(0);
  }
  EXPECT_EQ(race.Decide().winner, 1u);
  EXPECT_FALSE(race.Decide().tied[0]);
}

}  // namespace
}  // namespace whet
