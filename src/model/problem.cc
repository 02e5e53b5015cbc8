#include "src/model/problem.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace whet {

const Value* Problem::Find(absl::string_view field) const {
  for (const auto& [name, value] : fields_) {
    if (name == field) return &value;
  }
  return nullptr;
}

int64_t Problem::Integer(absl::string_view field) const {
  const Value* found = Find(field);
  const int64_t* integer = found == nullptr ? nullptr : std::get_if<int64_t>(found);
  return integer == nullptr ? 0 : *integer;
}

absl::StatusOr<FieldValues> ParseFieldText(absl::string_view text, std::string* operation) {
  operation->clear();
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos && colon < text.find('=')) {
    *operation = std::string(absl::StripAsciiWhitespace(text.substr(0, colon)));
    text.remove_prefix(colon + 1);
  }
  FieldValues fields;
  if (absl::StripAsciiWhitespace(text).empty()) return fields;
  for (absl::string_view piece : absl::StrSplit(text, ',')) {
    piece = absl::StripAsciiWhitespace(piece);
    const size_t equals = piece.find('=');
    if (equals == absl::string_view::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read problem: \"", absl::CHexEscape(piece),
                       "\" is not name=value; problems are written op:name=value,name=value"));
    }
    const std::string value(piece.substr(equals + 1));
    int64_t integer = 0;
    // Only the canonical spelling is an integer for sure: "007" may be meant as text.
    const bool is_integer = absl::SimpleAtoi(value, &integer) && absl::StrCat(integer) == value;
    fields.emplace_back(std::string(piece.substr(0, equals)),
                        is_integer ? Value(integer) : Value(value));
  }
  return fields;
}

}  // namespace whet
