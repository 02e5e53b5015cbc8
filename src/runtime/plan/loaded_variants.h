// Gives the tuner its variants and keeps them loaded, so that the winner need not be loaded again.
//
//   LoadedVariants source([&](const Variant& v) { return Load(v); }, /*side_by_side=*/true);
//   Tune(request, device, source, progress);
//   LoadedVariant winner = source.Take(result->winner);
//
// Several are loaded at once, as many as there are processors. `side_by_side`: what is ready is handed
// over while the others are still being compiled; for a device that is not the processor itself,
// where compilers would disturb what is verified and probed beside them. Thread-safe but for
// PrepareEach, which calls back on its caller's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/mutex.h"
#include "src/runtime/plan/plan.h"
#include "src/tune/tuner.h"

namespace whet {

// A variant that is ready to run.
struct LoadedVariant {
  std::shared_ptr<Module> module;
  PreparedVariant prepared;
  std::string code_key;
  std::string compiler;
  Origin code_origin = Origin::kNone;
};

class LoadedVariants final : public VariantSource {
 public:
  // Called from several threads.
  using Load = std::function<absl::StatusOr<LoadedVariant>(const Variant&)>;

  LoadedVariants(Load load, bool side_by_side)
      : load_(std::move(load)), side_by_side_(side_by_side) {}

  std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) override;
  void PrepareEach(const std::vector<Variant>& variants, const Ready& ready) override;

  // The variant must have been prepared.
  LoadedVariant Take(const Variant& variant);
  // How many were compiled, and not found in a cache.
  int compiled() const;

 private:
  absl::StatusOr<PreparedVariant> One(const Variant& variant);

  const Load load_;
  const bool side_by_side_;
  mutable Mutex mutex_;
  std::map<std::string, LoadedVariant> loaded_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace whet
