// A tuning problem on the simulated GPU whose answer is known.
//
//   SimulatedSpace space({.variants = 16, .space_seed = 3, .noise_seed = 5});
//   absl::StatusOr<TuningResult> r = Tune(space.request(), space.device(), space.source(), nullptr);
//   space.Regret(r->winner)      // 0.004: 0.4 % slower at steady state than the best
//
// Steady-state times are spaced by 0.5 to 10 % from one to the next (log-uniform), in random order;
// the variants' power scatters by 10 % either way, so that their ranking at a common clock is
// another one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/tune/tuner.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_variants.h"
#include "tests/support/simulated_gpu.h"

namespace whet {

struct SpaceOptions {
  int variants = 16;
  uint64_t space_seed = 1;  // which variants there are
  uint64_t noise_seed = 1;  // what disturbs the measuring
  double least_spacing = 0.005, most_spacing = 0.10;
  double fastest_ns = 300'000;
  double power_scatter = 0.10;
  SimulationOptions gpu;  // its seed is noise_seed
};

class SimulatedSpace {
 public:
  explicit SimulatedSpace(const SpaceOptions& options);

  TuningRequest request() { return op_.Request(); }
  FakeDevice& device() { return device_; }
  SimulatedGpu& gpu() { return gpu_; }
  FakeVariants& source() { return op_; }
  int variants() const { return static_cast<int>(steady_ns_.size()); }
  Kernel kernel(int i) const { return kernels_[static_cast<size_t>(i)]; }

  double steady_ns(int i) const { return steady_ns_[static_cast<size_t>(i)]; }
  // Steady-state time over the best one's, minus 1.
  double Regret(int i) const;
  double Regret(const Variant& variant) const;
  int IndexOf(const Variant& variant) const;

 private:
  FakeDevice device_;
  SimulatedGpu gpu_;
  FakeVariants op_;
  std::vector<Kernel> kernels_;
  std::vector<double> steady_ns_;
  std::vector<std::string> ids_;
};

}  // namespace whet
