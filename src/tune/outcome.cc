#include "src/tune/tuner.h"

namespace whet {

absl::string_view VariantOutcomeName(VariantOutcome outcome) {
  switch (outcome) {
    case VariantOutcome::kTimed:
      return "timed";
    case VariantOutcome::kDropped:
      return "dropped";
    case VariantOutcome::kWrong:
      return "wrong";
    case VariantOutcome::kFailed:
      return "failed";
    case VariantOutcome::kUntried:
      return "untried";
  }
  return "unknown";
}

}  // namespace whet
