// What the resolver's source files share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/runtime/resolver.h"

namespace whet {

struct Resolver::Choice {
  Variant variant;
  Origin origin = Origin::kNone;
  std::string code_key;
  double gain = 0;
  std::string note;
  // Of a stored winner, or of one that was tuned now.
  double winner_ns = 0;
  std::optional<DataSignature> signature;
  std::vector<Variant> few;
  // Only after tuning, or once it was loaded.
  std::optional<LoadedVariant> loaded;
  std::unique_ptr<TuningResult> tuning;
  int compiled = 0;
};

inline bool MayTune(TuningMode mode) {
  return mode == TuningMode::kBlocking || mode == TuningMode::kOnline;
}

}  // namespace whet
