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
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/device/device.h"
#include "src/model/kernel_template.h"
#include "src/model/variant.h"

namespace whet {

// Raised whenever timings of two versions cannot be compared; part of the tuning key.
inline constexpr int64_t kTuningProtocol = 1;

// A variant that is compiled and loaded.
struct PreparedVariant {
  Kernel kernel;
  LaunchGeometry geometry;
  std::vector<TensorMap> tensor_maps;
};

// Where the tuner gets its variants from. Compiles as many at once as it sees fit; results are in
// the order asked.
class VariantSource {
 public:
  virtual ~VariantSource() = default;
  virtual std::vector<absl::StatusOr<PreparedVariant>> Prepare(
      const std::vector<Variant>& variants) = 0;
};

struct TuningPolicy {
  double tie_zone =
      0.01;  // closer than this counts as equal: the earlier in the list of variants wins
  double replace_gain = 0.03;  // an incumbent is replaced only on a gain proven to be at least this
  absl::Duration budget =
      absl::Seconds(60);  // device and compile time together; what is found by then is used
  int screening_rounds =
      5;  // interleaved rounds of short batches before the first candidate may be dropped
  absl::Duration soak =
      absl::Milliseconds(0);  // before a finalist is timed; 0: the device's measured settle time
  absl::Duration final_time = absl::Milliseconds(200);  // of timing, per finalist
  int finalists = 4;
};

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
};

enum class VariantOutcome : uint8_t { kTimed, kDropped, kWrong, kFailed, kUntried };
absl::string_view VariantOutcomeName(
    VariantOutcome outcome);  // "timed", "dropped", "wrong", "failed", "untried"

struct VariantEvidence {
  Variant variant;
  VariantOutcome outcome = VariantOutcome::kUntried;
  std::string reason;  // of dropped, wrong, failed
  double relative_error =
      -1;  // largest over the outputs, against the reference variant; -1: not measured
  double median_ns = 0;            // of the last stage it reached
  double low_ns = 0, high_ns = 0;  // 95 % confidence interval of the median
  bool final_round = false;        // measured at its own steady state
  std::vector<double> samples_ns;
  std::vector<TelemetrySample> telemetry;
};

struct TuningResult {
  Variant winner;
  double gain =
      0;  // median time of the default variant over the winner's; 1: no gain, 0: default not timed
  std::vector<VariantEvidence> evidence;           // one per variant, in the order of the request
  absl::Duration compile, verify, screen, finals;  // where the time went
  bool budget_spent = false;
};

// What the tuner is doing, for progress lines: stage ("compile", "verify", "screen", "finals"), how
// many of how many.
using TuningProgress = std::function<void(absl::string_view stage, int done, int of)>;

// FailedPrecondition when no variant is left (each one's reason is in the message),
// ResourceExhausted when scratch does not fit into device memory, Unavailable when the device was
// lost. The caller's buffers are unchanged in every case.
absl::StatusOr<TuningResult> Tune(const TuningRequest& request, Device& device,
                                  VariantSource& source, const TuningProgress& progress);

}  // namespace whet
