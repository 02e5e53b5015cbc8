// A plan: everything a launch needs, settled. What remains is to hand over the arguments.
//
//   void* args[] = {&q, &k, &v, &o, &lse, &scale};       // args[i] points to the value of argument
//   i, as in cuLaunchKernel absl::Status status = plan->Launch(args, stream);
//
// Immutable after it is made and thread-safe; belongs to its Runtime and lives as long.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/tune/tuner.h"

namespace whet {

// Where something came from.
enum class Origin : uint8_t { kNone, kUser, kPack, kCompiled, kTuned, kDefault, kMemory };
absl::string_view OriginName(Origin origin);  // "user cache", "pack", "compiled", ...

// How a plan came about, for people and events.
struct Resolution {
  std::string problem;  // canonical text
  std::string target;
  std::string variant;
  Origin variant_origin = Origin::kNone;  // kUser, kPack, kTuned or kDefault
  Origin code_origin = Origin::kNone;     // kUser, kPack or kCompiled
  std::string layer_path;                 // file that held the code, where it was a file
  std::string compiler;                   // "hostcxx 14.0.6" of the code that runs
  int variants = 0;                       // of the problem on this device
  int compiled = 0;                       // code objects compiled for this plan
  double gain = 0;  // winner over default variant, as tuned (also when the winner came from a
                    // cache); 0: unknown
  absl::Duration total, compile, load, tune;
};

class Plan {
 public:
  Plan(Device& device, std::shared_ptr<Module> module, PreparedVariant prepared,
       std::vector<Argument> arguments, Resolution resolution);

  // Starts the kernel and returns. args[i] points to the value of argument i; pointers of absent
  // arguments may be null. InvalidArgument when a present argument is null or less aligned than the
  // problem says.
  absl::Status Launch(void* const* args, StreamHandle stream) const;

  const Resolution& resolution() const { return resolution_; }
  const LaunchGeometry& geometry() const { return prepared_.geometry; }
  const std::vector<Argument>& arguments() const { return arguments_; }
  // Filled when this plan was tuned in this process.
  const TuningResult* tuning() const { return tuning_.get(); }
  void set_tuning(std::unique_ptr<TuningResult> tuning) { tuning_ = std::move(tuning); }

 private:
  Device& device_;
  std::shared_ptr<Module> module_;
  PreparedVariant prepared_;
  std::vector<Argument> arguments_;
  Resolution resolution_;
  std::unique_ptr<TuningResult> tuning_;
};

}  // namespace whet
