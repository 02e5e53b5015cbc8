// The tuner: times the variants of a kernel on the caller's own tensors and settles a winner.
//
//   absl::StatusOr<TuningResult> r = Tune(request, device, source, progress);
//   r->winner.id() == "cpu:block_kv=128,block_q=32"
//
// Contract: inputs are the caller's own buffers and are only read. Buffers that a kernel writes go
// to private scratch (read-write ones are cloned first, and again before every verified run), never
// to the caller's. Every variant is verified against the reference variant before it may be timed.
// A variant that fails to compile, to load or to launch, or is wrong, is out with its reason, and
// the tuning goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/base/clock.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/model/variant.h"

namespace whet {

// Raised whenever timings of two versions cannot be compared; part of the tuning key.
inline constexpr int64_t kTuningProtocol = 3;

inline constexpr size_t kStoredSamples = 256;

// A variant that is compiled and loaded.
struct PreparedVariant {
  Kernel kernel;
  LaunchGeometry geometry;
  std::vector<TensorMap> tensor_maps;
};

// Where the tuner gets its variants from. Compiles as many at once as it sees fit.
class VariantSource {
 public:
  // Takes what became of `variants[index]`; false: the others are not wanted any more.
  using Ready = std::function<bool(size_t index, absl::StatusOr<PreparedVariant> prepared)>;

  virtual ~VariantSource() = default;
  // (required) All of them, in the order asked.
  virtual std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) = 0;
  // (optional: all together) Hands each over as soon as it is ready, on the calling thread, while the
  // others are still being compiled.
  virtual void PrepareEach(const std::vector<Variant>& variants, const Ready& ready) {
    std::vector<absl::StatusOr<PreparedVariant>> prepared = Prepare(variants);
    for (size_t i = 0; i < prepared.size(); ++i) {
      if (!ready(i, std::move(prepared[i]))) return;
    }
  }
};

struct TuningPolicy {
  // Proven to be closer than this counts as equal: the earlier in the list of variants wins.
  double tie_zone = 0.01;
  // An incumbent is replaced only on a gain proven to be at least this.
  double replace_gain = 0.03;
  // Device and compile time together; what is found by then is used.
  absl::Duration budget = absl::Seconds(60);
  // Interleaved rounds of short batches before the first candidate may be dropped.
  int screening_rounds = 5;
  // How much more than the tie zone a candidate must surely lose there: taking turns hides what the
  // clock does to each alone.
  double screening_margin = 0.07;
  // Before a finalist is timed; 0: until its timings are flat, at most `longest_soak`.
  absl::Duration soak = absl::ZeroDuration();
  absl::Duration longest_soak = absl::Seconds(1);
  // Of timing per finalist, in two visits; some of the finalists get more while the decision is open.
  absl::Duration final_time = absl::Milliseconds(200);
  int finalists = 4;
  // Spaces larger than this are searched by a seeded strategy (search.h) and not tried whole.
  int most_variants = 96;
  // Once so long was spent on getting variants ready, the next chunk is prepared only when the last
  // one had a variant that was faster than all before by more than the tie zone. What a call that
  // somebody waits for can bear; infinite: everything is tried.
  absl::Duration patience = absl::InfiniteDuration();
  // Variants that the source is asked for at once; 0: twice as many as there are processors, at least 4
  // with little patience and 8 without.
  int chunk = 0;
  // A first launch may take 20 times what the reference took, but this long at least and a minute at
  // most.
  absl::Duration least_trial = absl::Seconds(2);
  uint64_t seed = 1;
};

struct VariantEvidence;

struct TuningRequest {
  std::vector<Variant> variants;  // in order of preference; the first is the default
  Variant reference;
  std::vector<Argument> arguments;      // of the problem
  std::vector<DevicePointer> pointers;  // one per argument, null for scalars and absent ones
  std::vector<uint64_t> scalars;        // one per argument, the bytes of scalars
  StreamHandle stream = nullptr;
  std::function<double(DType)> tolerance;  // largest relative L2 difference to the reference
  std::string incumbent;                   // variant id, or empty
  TuningPolicy policy;
  Clock* clock = Clock::Real();  // what the budget is counted by

  // What earlier runs found out (a run that was killed, the block list of this target and
  // toolchain): a variant that was wrong, failed or was dropped there is not tried again and keeps
  // its outcome and reason; others are tried as usual.
  std::vector<VariantEvidence> known;
  // Called as soon as a variant is out (wrong, failed, dropped), so that it can be stored before
  // anything else happens.
  std::function<void(const VariantEvidence&)> on_out;
  // Called before a variant's first launch in this process, and when it has ended: a mark that is
  // stored by the one and never cleared by the other names the variant that hung or took the process
  // with it.
  std::function<void(const Variant&)> before_first_launch;
  std::function<void(const Variant&)> after_first_launch;
};

enum class VariantOutcome : uint8_t { kTimed, kDropped, kWrong, kFailed, kUntried };
absl::string_view VariantOutcomeName(
    VariantOutcome outcome);  // "timed", "dropped", "wrong", "failed", "untried"

struct VariantEvidence {
  Variant variant;
  VariantOutcome outcome = VariantOutcome::kUntried;
  std::string reason;  // of dropped, wrong, failed
  std::string
      stage;  // the last that it was in: "compile", "verify", "screen", "heats", "finals", "live"
  double out_s = 0;      // seconds from the beginning until it was out; 0: it was not
  bool blocked = false;  // its trial faulted or did not end: not to be run again on this target
  double relative_error =
      -1;  // largest over the outputs, against the reference variant; -1: not measured
  double median_ns = 0;            // of the last stage it reached
  double low_ns = 0, high_ns = 0;  // 95 % confidence interval of the median
  bool final_round = false;        // measured at its own steady state
  bool steady = false;             // and its timings had become flat before they were taken
  bool tied = false;  // in the final round, and not told from the fastest by the tie zone
  std::vector<double> samples_ns;  // of that stage; at most kStoredSamples, evenly chosen
  std::vector<TelemetrySample> telemetry;
};

struct TuningResult {
  Variant winner;
  double gain =
      0;  // median time of the default variant over the winner's; 1: no gain, 0: default not timed
  std::vector<VariantEvidence> evidence;           // one per variant, in the order of the request
  absl::Duration compile, verify, screen, finals;  // where the time went
  absl::Duration device;                           // of it, what the device spent in timed launches
  absl::Duration soak;          // the longest that a finalist took to become flat
  bool kept_incumbent = false;  // another was faster, but not by as much as `replace_gain` asks
  bool budget_spent = false;    // before the protocol was through
  std::string data_signature;   // of the inputs, as JSON (signature.h); set by who took it
};

// What the tuner is doing, for progress lines: stage ("compile", "verify", "screen", "finals"), how
// many of how many.
using TuningProgress = std::function<void(absl::string_view stage, int done, int of)>;

// FailedPrecondition when no variant is left (each one's reason is in the message), when the
// reference cannot be run, or when the stream is being captured; InvalidArgument when arguments and
// pointers do not fit together or tensors overlap; ResourceExhausted when scratch does not fit into
// device memory; Unavailable when the device was lost. The caller's buffers are unchanged in every
// case. With a budget that is spent too early the result is the best that is known, at worst the
// first variant that was verified, untimed.
absl::StatusOr<TuningResult> Tune(const TuningRequest& request, Device& device,
                                  VariantSource& source, const TuningProgress& progress);

}  // namespace whet
