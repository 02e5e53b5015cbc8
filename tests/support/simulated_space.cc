#include "tests/support/simulated_space.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

SimulationOptions WithSeed(SimulationOptions options, uint64_t seed) {
  options.seed = seed;
  return options;
}

}  // namespace

SimulatedSpace::SimulatedSpace(const SpaceOptions& options)
    : gpu_(WithSeed(options.gpu, options.noise_seed)), op_(device_, 1) {
  device_.SetTimingModel(&gpu_);
  device_.SetClockLag(absl::Milliseconds(150));
  std::mt19937_64 random(options.space_seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> steady;
  double ns = options.fastest_ns;
  for (int i = 0; i < options.variants; ++i) {
    steady.push_back(ns);
    ns *= 1 + options.least_spacing *
                  std::pow(options.most_spacing / options.least_spacing, uniform(random));
  }
  std::shuffle(steady.begin(), steady.end(), random);
  for (int i = 0; i < options.variants; ++i) {
    const double watts =
        SimulatedGpu::kWattsNormal * (1 + options.power_scatter * (2 * uniform(random) - 1));
    gpu_.AddKernel({.boost_ns = 1, .watts = watts});
    const double slowdown = gpu_.SteadyNanoseconds(i);
    const double boost_ns = steady[static_cast<size_t>(i)] / slowdown;
    gpu_.SetKernel(i, {.boost_ns = boost_ns, .watts = watts});
    steady_ns_.push_back(gpu_.SteadyNanoseconds(i));
    ids_.push_back(absl::StrCat("k:a=", i));
    op_.Add({.id = ids_.back()});
    kernels_.push_back(op_.kernel(i));
  }
}

int SimulatedSpace::IndexOf(const Variant& variant) const {
  return static_cast<int>(std::find(ids_.begin(), ids_.end(), variant.id()) - ids_.begin());
}

double SimulatedSpace::Regret(int i) const {
  return steady_ns(i) / *std::min_element(steady_ns_.begin(), steady_ns_.end()) - 1;
}

double SimulatedSpace::Regret(const Variant& variant) const { return Regret(IndexOf(variant)); }

}  // namespace whet
