#include "tests/support/simulated_gpu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace whet {
namespace {

constexpr double kTickNs = 27e6;
constexpr double kTickGain = 0.55;
constexpr double kPowerExponent = 2.5;
constexpr double kDroop = 0.05;  // of the fast limiter, on normal data at the full clock
constexpr double kHeatNs = 400e6;
constexpr double kHeatClock = 0.015;  // what full heat takes from the clock under the cap
constexpr double kPaybackBeginNs = 0.8e9, kPaybackEndNs = 1.1e9, kPayback = 0.07;
constexpr double kWanderNs = 90e6;
constexpr double kSpikeNs = 0.25e6;
constexpr double kDynamicCap = SimulatedGpu::kCapWatts - SimulatedGpu::kIdleWatts;

}  // namespace

SimulatedGpu::SimulatedGpu(const SimulationOptions& options)
    : options_(options), random_(options.seed) {
  std::uniform_real_distribution<double> uniform(0, 1);
  next_tick_ns_ = uniform(random_) * kTickNs;
  next_spike_ns_ = options.spike_every_ns * (0.5 + uniform(random_));
  tenant_begin_ns_ = 4e9 * -std::log(1 - uniform(random_));
}

double SimulatedGpu::CappedClock(double watts, double heat) const {
  if (watts <= kDynamicCap) return 1;
  return std::pow(kDynamicCap / watts, 1 / kPowerExponent) * (1 - kHeatClock * (heat - 0.5));
}

double SimulatedGpu::Droop(double watts) const {
  const double asked = watts * std::pow(clock_, kPowerExponent);
  const double beyond = (asked - kDynamicCap) / (kWattsNormal - kDynamicCap);
  // The controller aims at the cap and its own wandering does not set the limiter off.
  return kDroop * std::clamp(beyond - 0.1, 0.0, 1.5) / 0.9;
}

double SimulatedGpu::SteadyNanoseconds(int kernel) const {
  const SimulatedKernel& k = kernels_[static_cast<size_t>(kernel)];
  return k.boost_ns / std::min(1.0, CappedClock(k.watts, 1));
}

void SimulatedGpu::Tick() {
  const double span = std::max(next_tick_ns_ - last_tick_ns_, 1.0);
  const double mean_watts = load_ / span;
  load_ = 0;
  last_tick_ns_ = next_tick_ns_;
  next_tick_ns_ += kTickNs;

  heat_ += (std::min(1.0, (kIdleWatts + mean_watts) / kCapWatts) - heat_) *
           (1 - std::exp(-span / kHeatNs));
  const double memory = std::exp(-span / kWanderNs);
  wander_ = memory * wander_ + std::sqrt(1 - memory * memory) * normal_(random_);

  const bool capped = mean_watts > kDynamicCap;
  if (!capped) capped_since_ns_ = -1;
  if (capped && capped_since_ns_ < 0) capped_since_ns_ = last_tick_ns_;
  double target = CappedClock(mean_watts, heat_);
  target *= 1 + wander_ * options_.wander * (capped ? 1 : 0.2);
  if (capped) {
    const double drift = options_.drift_per_second * last_tick_ns_ / 1e9;
    target *= 1 + std::clamp(drift, -0.05, 0.05);
    const double since = last_tick_ns_ - capped_since_ns_;
    if (since > kPaybackBeginNs && since < kPaybackEndNs) {
      const double phase = (since - kPaybackBeginNs) / (kPaybackEndNs - kPaybackBeginNs);
      const double wave = std::sin(std::numbers::pi * phase);
      target *= 1 - kPayback * wave * wave;
    }
  }
  clock_ += kTickGain * (std::min(target, 1.0) - clock_);
}

void SimulatedGpu::Pass(double ns, double watts) {
  const double end = now_ns_ + ns;
  while (next_tick_ns_ <= end) {
    load_ += watts * (next_tick_ns_ - now_ns_);
    now_ns_ = next_tick_ns_;
    Tick();
  }
  load_ += watts * (end - now_ns_);
  now_ns_ = end;
}

double SimulatedGpu::TenantFactor(double now_ns) {
  if (!options_.tenants || now_ns < tenant_begin_ns_) return 1;
  std::uniform_real_distribution<double> uniform(0, 1);
  if (tenant_end_ns_ < tenant_begin_ns_) {
    tenant_end_ns_ = tenant_begin_ns_ + 0.1e9 + 0.4e9 * uniform(random_);
    tenant_factor_ = 1.1 + 0.3 * uniform(random_);
  }
  if (now_ns < tenant_end_ns_) return tenant_factor_;
  tenant_begin_ns_ = now_ns + 4e9 * -std::log(1 - uniform(random_));
  return 1;
}

int64_t SimulatedGpu::DurationNanoseconds(int kernel, int64_t nominal_ns, int64_t start_ns,
                                          int64_t) {
  const auto start = static_cast<double>(start_ns);
  if (start > now_ns_) Pass(start - now_ns_, 0);
  if (static_cast<size_t>(kernel) >= kernels_.size()) return nominal_ns;
  const SimulatedKernel& k = kernels_[static_cast<size_t>(kernel)];
  last_watts_ = k.watts;
  double ns = k.boost_ns / (clock_ * (1 - Droop(k.watts)));
  ns *= std::exp(options_.launch_noise * normal_(random_)) * TenantFactor(start);
  if (options_.spike_every_ns > 0 && start >= next_spike_ns_) {
    ns += kSpikeNs;
    std::uniform_real_distribution<double> uniform(0.5, 1.5);
    next_spike_ns_ = start + options_.spike_every_ns * uniform(random_);
  }
  Pass(ns, k.watts);
  return static_cast<int64_t>(ns);
}

TelemetrySample SimulatedGpu::Telemetry(int64_t now_ns) {
  TelemetrySample sample;
  sample.monotonic_ns = now_ns;
  sample.clock_mhz = kBoostMhz * clock_ * (1 - Droop(last_watts_));
  sample.power_watts =
      kIdleWatts + std::min(last_watts_ * std::pow(clock_, kPowerExponent), kDynamicCap);
  sample.temperature_celsius = 35 + 30 * heat_;
  return sample;
}

}  // namespace whet
