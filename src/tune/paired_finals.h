// Finals on the host's processors: the finalists launch by turns, and a race decides (paired_race.h).
//
//   absl::StatusOr<FinalsResult> r = RunPairedFinals(finalists, watch, rules, keep_going);
//   r->decision.winner
//
// For devices that tell their Device::Work; others have a clock that follows the kernel, and run
// alone (finals.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/tune/finals.h"
#include "src/tune/measuring.h"
#include "src/tune/paired_race.h"

namespace whet {

// As RunFinals, but `keep_going` is asked before each round; there are no heats. A finalist's one
// visit is its median over all rounds.
absl::StatusOr<FinalsResult> RunPairedFinals(absl::Span<const FinalistInput> finalists,
                                             Stopwatch& watch, const PairedRules& rules,
                                             const std::function<bool()>& keep_going);

}  // namespace whet
