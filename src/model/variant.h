// A variant: one kernel of a template with one value for each of its tunable parameters.
//
//   Variant v = *Variant::Parse("cpu:block_kv=64,block_q=32");
//   v.id() is that text again: the variant's stable name in caches, messages and options. Never an
//   index.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

struct Variant {
  std::string kernel;
  std::vector<std::pair<std::string, int64_t>>
      parameters;  // in the order of the kernel's description

  std::string id() const;
  static absl::StatusOr<Variant> Parse(absl::string_view id);

  friend bool operator==(const Variant&, const Variant&) = default;
};

}  // namespace whet
