// A problem: an operation with every exact extent, dtype, layout and flag that matters.
//
//   Problem p = *kernel_template.MakeProblem({{"dtype", "bf16"}, {"batch", 1}, ...});
//   p.text() == "attention_forward:dtype=bf16,batch=1,heads_q=8,..."       // canonical: template
//   order, defaults left out
//
// Made and checked by KernelTemplate::MakeProblem only, so a Problem is always valid. Immutable,
// cheap to copy.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/model/expression.h"

namespace whet {

using FieldValues = std::vector<std::pair<std::string, Value>>;

class Problem {
 public:
  const std::string& operation() const { return operation_; }
  const FieldValues& fields() const {
    return fields_;
  }  // all of them, defaults filled in, template order
  const std::string& text() const { return text_; }
  // All fields as words in template order: integers and flags as they are, dtypes as their codes, text
  // as the low half of its XXH3-128. What the plan table compares and what the C interface takes.
  const std::vector<int64_t>& packed() const { return packed_; }
  const Value* Find(absl::string_view field) const;
  // For fields known to be integers or flags; 0 when there is no such field.
  int64_t Integer(absl::string_view field) const;

  friend bool operator==(const Problem& a, const Problem& b) { return a.text_ == b.text_; }

 private:
  friend class KernelTemplate;
  Problem() = default;
  std::string operation_;
  FieldValues fields_;
  std::string text_;
  std::vector<int64_t> packed_;
};

// "op:name=value,name=value" or "name=value,..." split into fields, integers recognised; no meaning
// is checked here. InvalidArgument names the piece that is not name=value. `operation` receives
// what stands before the colon, or stays empty.
absl::StatusOr<FieldValues> ParseFieldText(absl::string_view text, std::string* operation);

}  // namespace whet
