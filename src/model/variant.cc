#include "src/model/variant.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/model/names.h"

namespace whet {

std::string Variant::id() const {
  if (parameters.empty()) return kernel;
  return absl::StrCat(kernel, ":", absl::StrJoin(parameters, ",", absl::PairFormatter("=")));
}

absl::StatusOr<Variant> Variant::Parse(absl::string_view id) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read variant \"", absl::CHexEscape(id), "\": ", why,
                     "; variants are written kernel:name=integer,name=integer"));
  };
  const size_t colon = id.find(':');
  Variant variant;
  variant.kernel = std::string(id.substr(0, colon));
  if (!IsName(variant.kernel)) return refuse("no kernel name at its start");
  if (colon != absl::string_view::npos) {
    for (const absl::string_view piece : absl::StrSplit(id.substr(colon + 1), ',')) {
      const size_t equals = piece.find('=');
      int64_t value = 0;
      if (equals == absl::string_view::npos || !IsName(piece.substr(0, equals)) ||
          !absl::SimpleAtoi(piece.substr(equals + 1), &value)) {
        return refuse(absl::StrCat("\"", absl::CHexEscape(piece), "\" is not name=integer"));
      }
      const std::string name(piece.substr(0, equals));
      for (const auto& [known, unused] : variant.parameters) {
        if (known == name) return refuse(absl::StrCat(name, " is given twice"));
      }
      variant.parameters.emplace_back(name, value);
    }
  }
  // One variant, one text: "+64" or "064" would be a second name for the same thing.
  if (variant.id() != id) return refuse(absl::StrCat("its canonical text is ", variant.id()));
  return variant;
}

}  // namespace whet
