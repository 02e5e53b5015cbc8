// A tuning result as JSON text: what a winner's cache entry keeps, so that a later run, a report or
// a person can see why it won and under which conditions.
//
//   std::string json = EvidenceToJson(result, {.driver = identity.driver, .compiler = "hostcxx 14"});
//   absl::StatusOr<Evidence> back = EvidenceFromJson(json);
//
// The format is a contract: fields are only added, readers ignore what they do not know and take
// defaults for what is missing, "format" is raised when a meaning changes. Times are nanoseconds
// with one decimal, errors and shares keep six digits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/tune/tuner.h"

namespace whet {

inline constexpr int64_t kEvidenceFormat = 1;  // never renumber

// Attributes of a winner that are no part of its key: an upgrade means "verify again", not
// "forget".
struct EvidenceContext {
  std::string driver;
  std::string compiler;        // name, version and build of the winner's
  std::string data_signature;  // JSON of the inputs' signature (signature.h); empty: none taken
};

struct Evidence {
  int64_t protocol = 0;
  EvidenceContext context;
  TuningResult result;
};

std::string EvidenceToJson(const TuningResult& result, const EvidenceContext& context);

// One variant's part, in one line and back: what a log of trials holds. InvalidArgument for what is
// none.
std::string VariantEvidenceToJson(const VariantEvidence& evidence);
absl::StatusOr<VariantEvidence> VariantEvidenceFromJson(absl::string_view json);

// InvalidArgument for what is no JSON object of this format (a newer format included), naming what
// is wrong. Accepts any text: numbers out of range and unknown names cannot hurt.
absl::StatusOr<Evidence> EvidenceFromJson(absl::string_view json);
// Its gain alone, without reading what is behind it: the samples of all variants take a millisecond,
// which a start that needs nothing else does not have. 0 where there is none.
double GainInJson(absl::string_view json);

}  // namespace whet
