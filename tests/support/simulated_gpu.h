// A GPU whose clock follows variant x data, in virtual time: what tuners are compared on.
//
//   FakeDevice device;
//   SimulatedGpu gpu({.seed = 7});
//   device.SetTimingModel(&gpu);
//   gpu.AddKernel({.boost_ns = 843'100, .watts = SimulatedGpu::kWattsNormal});   // kernel 0
//   gpu.SteadyNanoseconds(0);      // the truth
//
// Fit to traces of one NVIDIA H200 (700 W) running one BF16 causal attention kernel (batch 1, 32
// heads, 8,192 tokens, head dimension 128) after idle on normal data, from normal data to zeros and
// back, taken on 2026-11-30. What was seen there and is modelled:
//   - on zeros the kernel takes 0.8431 ms at the full 1,980 MHz; on normal data it begins at 0.889
//     ms (a fast limiter takes 5 % at once when the power asked for is far beyond the cap) and the
//     power controller then lowers the clock in steps about 27 ms apart, each about 0.55 of what is
//     missing: 0.93 ms at 30-55 ms, 0.985 at 60 ms, 1.00 at 100 ms; the same lag on the way up;
//   - it creeps to 1.01 ms with the heat, within about 0.4 s, and 0.8 to 1.1 s after the cap was
//     reached runs up to 7 % slower for a while, once;
//   - where the cap holds the clock wanders by about 1 % with a memory of 90 ms, elsewhere by 0.2 %;
//   - single launches scatter by 0.43 %, and one about every 40 ms takes 0.25 ms longer;
//   - 25 ms of idleness after every 30 ms of work keep the clock at boost.
// Assumed, not measured: dynamic power goes with the 2.5th power of the clock; other tenants and
// the slow drift of the room are made up.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/fake_device.h"

namespace whet {

struct SimulatedKernel {
  double boost_ns = 0;  // of one launch at the full clock
  double watts = 0;     // dynamic power at the full clock, on the data at hand
};

struct SimulationOptions {
  uint64_t seed = 1;
  double launch_noise = 0.0043;
  double spike_every_ns = 40e6;  // 0: none
  double wander = 0.01;
  double drift_per_second = 0;  // of the clock under the cap; bounded to 5 % in all
  bool tenants = false;         // who come about every 4 s for 0.1 to 0.5 s and take 10 to 40 %
};

class SimulatedGpu final : public TimingModel {
 public:
  static constexpr double kWattsZeros = 445;   // with 120 W of idle power: 565 W, as measured
  static constexpr double kWattsNormal = 895;  // what makes 690 W at 1,653 MHz
  static constexpr double kIdleWatts = 120;
  static constexpr double kCapWatts = 690;
  static constexpr double kBoostMhz = 1980;

  explicit SimulatedGpu(const SimulationOptions& options);

  // Kernels are numbered as in the FakeDevice: add them in the same order. Other kernels of the
  // device keep their nominal duration and draw nothing.
  void AddKernel(const SimulatedKernel& kernel) { kernels_.push_back(kernel); }
  void SetKernel(int i, const SimulatedKernel& kernel) {
    kernels_[static_cast<size_t>(i)] = kernel;
  }
  // The data changed: from now on kernel `i` draws this.
  void SetWatts(int i, double watts) { kernels_[static_cast<size_t>(i)].watts = watts; }

  // Median duration when the kernel has run alone for a long time, without tenants and drift.
  double SteadyNanoseconds(int kernel) const;

  int64_t DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns,
                              int64_t idle_since_ns) override;
  TelemetrySample Telemetry(int64_t now_ns) override;

 private:
  double CappedClock(double watts, double heat) const;
  double Droop(double watts) const;
  // Lets `ns` pass under a load of `watts` (at the full clock).
  void Pass(double ns, double watts);
  void Tick();
  double TenantFactor(double now_ns);

  SimulationOptions options_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<SimulatedKernel> kernels_;
  double now_ns_ = 0;
  double next_tick_ns_ = 0, last_tick_ns_ = 0;
  double load_ = 0;  // integral of watts over time since the last tick
  double clock_ = 1;
  double heat_ = 0;
  double wander_ = 0;
  double capped_since_ns_ = -1;
  double next_spike_ns_ = 0;
  double tenant_begin_ns_ = 0, tenant_end_ns_ = 0, tenant_factor_ = 1;
  double last_watts_ = 0;
};

}  // namespace whet
