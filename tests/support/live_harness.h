// What live tuning needs round it on a FakeDevice: variants, and a background that works when told.
//
//   LaterBackground background;
//   LiveOptions options = FakeLiveOptions(device, op, background);
//   LiveCalls calls(*first, std::move(options));
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "src/base/background.h"
#include "src/runtime/live/live_calls.h"
#include "tests/support/fake_variants.h"

namespace whet {

// Runs what was posted when it is told to.
class LaterBackground final : public Background {
 public:
  using Background::Post;
  void Post(std::function<void()> task, bool) override { tasks_.push_back(std::move(task)); }
  void Run() {
    while (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

inline absl::StatusOr<std::unique_ptr<Plan>> FakePlan(FakeDevice& device, FakeVariants& op,
                                                      const Variant& variant) {
  absl::StatusOr<PreparedVariant> prepared = op.Prepare({variant}).front();
  if (!prepared.ok()) return prepared.status();
  Resolution resolution;
  resolution.variant = variant.id();
  return Plan::Make(device, nullptr, *std::move(prepared), op.Request().arguments, 4,
                    std::move(resolution));
}

// Counts what it is asked for.
class FakeLiveVariants final : public LiveVariants {
 public:
  FakeLiveVariants(FakeDevice& device, FakeVariants& op) : device_(device), op_(op) {}
  absl::Status Fetch(const Variant&) override {
    ++fetches_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Plan>> Load(const Variant& variant) override {
    ++loads_;
    return FakePlan(device_, op_, variant);
  }
  int fetches() const { return fetches_; }
  int loads() const { return loads_; }

 private:
  FakeDevice& device_;
  FakeVariants& op_;
  int fetches_ = 0, loads_ = 0;
};

// The rest of `options` stays as it is.
inline LiveOptions FakeLiveOptions(FakeDevice& device, FakeVariants& op, Background& background,
                                   LiveOptions options = {}) {
  const TuningRequest request = op.Request();
  options.device = &device;
  options.arguments = request.arguments;
  options.tolerance = request.tolerance;
  options.variants = std::make_unique<FakeLiveVariants>(device, op);
  options.background = &background;
  options.clock = &device.clock();
  return options;
}

}  // namespace whet
