// A plan: everything a launch needs, settled. What remains is to hand over the arguments.
//
//   void* args[] = {&q, &k, &v, &o, &lse, &scale};       // args[i] points to the value of argument
//   i, as in cuLaunchKernel absl::Status status = plan->Launch(args, stream);
//
// Immutable after it is published and thread-safe; belongs to its Runtime and lives as long.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/tune/tuner.h"

namespace whet {

// Where a variant or its code came from.
enum class Origin : uint8_t { kNone, kUserCache, kPack, kCompiled, kTuned, kDefault, kInherited };
// kPack when a layered cache found it in a pack, else kUserCache.
Origin OriginOfLayer(absl::string_view layer);
// "none", "user cache", "pack", "compiled", "tuned", "default", "inherited"
absl::string_view OriginName(Origin origin);

// How a plan came about, for people and events.
struct Resolution {
  std::string problem;  // canonical text
  std::string target;
  std::string variant;
  // kUserCache, kPack, kTuned, kDefault, or kInherited: a stored winner for another class of data.
  Origin variant_origin = Origin::kNone;
  Origin code_origin =
      Origin::kNone;     // kUserCache, kPack or kCompiled; kNone when there is nothing to run
  std::string compiler;  // "hostcxx 14.0.6", of the code that runs
  std::string code_key;  // its key record
  int variants = 0;      // of the problem on this device; 0 where nobody had to list them
  int compiled = 0;      // code objects compiled for this plan
  double gain =
      0;  // default variant's time over the winner's, as measured when it was tuned; 0: unknown
  std::string note;  // why something else than asked for was taken, when so
  absl::Duration total, compile, tune;
};

class Plan;

// Takes over the launches of a plan whose tuning goes on (live_calls.h).
class LiveLaunch {
 public:
  virtual ~LiveLaunch() = default;
  virtual absl::Status Launch(void* const* args, StreamHandle stream) = 0;
  // What a launch runs now, trials aside.
  virtual const Plan& Current() const = 0;
};

class Plan {
 public:
  // Limits of a launch, so that the hot path needs no allocation.
  static constexpr int kMaxArguments = 48;
  static constexpr int kMaxTensorMaps = 8;

  // `module` and `prepared.kernel` may be null only when the geometry is empty.
  static absl::StatusOr<std::unique_ptr<Plan>> Make(Device& device, std::shared_ptr<Module> module,
                                                    PreparedVariant prepared,
                                                    std::vector<Argument> arguments,
                                                    int64_t alignment, Resolution resolution);

  // Starts the kernel and returns. args[i] points to the value of argument i; those of absent
  // arguments are ignored. InvalidArgument when the pointer of a present, non-empty argument is
  // null or not a multiple of the problem's alignment.
  absl::Status Launch(void* const* args, StreamHandle stream) const {
    if (live_ != nullptr) return live_->Launch(args, stream);
    return LaunchNow(args, stream);
  }
  // This very variant, whatever else is going on.
  absl::Status LaunchNow(void* const* args, StreamHandle stream) const;
  // The part of Launch that looks at the arguments.
  absl::Status CheckPointers(void* const* args) const;
  // Runs it where a fault or an endless loop harms nobody, as far as the device can
  // (Device::TrialLaunch); waits.
  absl::Status TrialRun(void* const* args, absl::Duration limit) const;

  // Before the plan is published, by one thread. Not owned; must live as long as launches do.
  void set_live(LiveLaunch* live) { live_ = live; }
  // The plan that launches run now: another one once live tuning has found a better variant.
  const Plan& Current() const { return live_ != nullptr ? live_->Current() : *this; }

  const Resolution& resolution() const { return resolution_; }
  // Before the plan is published.
  Resolution& mutable_resolution() { return resolution_; }
  const LaunchGeometry& geometry() const { return prepared_.geometry; }
  const std::vector<Argument>& arguments() const { return arguments_; }
  // The measurements, when this plan was tuned in this process; else null.
  const TuningResult* tuning() const { return tuning_.get(); }
  void set_tuning(std::unique_ptr<TuningResult> tuning) { tuning_ = std::move(tuning); }

 private:
  static constexpr size_t kMapBytes = 128;
  struct alignas(64) MapBytes {
    std::byte bytes[kMapBytes];
  };

  Plan(Device& device, std::shared_ptr<Module> module, PreparedVariant prepared,
       std::vector<Argument> arguments, int64_t alignment, Resolution resolution);
  absl::Status LaunchWithTensorMaps(void* const* args, StreamHandle stream) const;
  absl::Status BadPointer(void* const* args) const;
  absl::Status EncodeMaps(void* const* args, MapBytes* maps) const;
  void LearnMaps(void* const* args) const;

  Device& device_;
  LiveLaunch* live_ = nullptr;
  std::shared_ptr<Module> module_;
  PreparedVariant prepared_;
  std::vector<Argument> arguments_;
  Resolution resolution_;
  std::unique_ptr<TuningResult> tuning_;
  std::vector<int> pointers_;  // arguments that must be non-null and aligned
  uintptr_t misaligned_ = 0;   // bits that no pointer may have
  // Tensor maps are encoded once; afterwards only the address in them changes, if that was found to
  // be all that an address changes.
  mutable std::once_flag learned_;
  mutable bool patchable_ = false;
  mutable std::vector<MapBytes> maps_;
};

}  // namespace whet
