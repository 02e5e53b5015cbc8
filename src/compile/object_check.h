// Whether the bytes that a compiler handed back are what was asked for: the last line of defence
// against compilers that report success and produce something else.
//
//   absl::Status fit = CheckAmdObject(bytes, "rms_norm_gpu", target, &resources);
//
// All return Internal with one clause on what does not fit; the bytes may be anything.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/compile/compiler.h"

namespace whet {

// A shared object for this machine's processor family that exports `entry`.
absl::Status CheckSharedObject(absl::string_view bytes, const std::string& entry);

// An AMD code object with the kernel `entry` and its descriptor, whose metadata names `target` with
// its feature flags. Fills in `resources`.
absl::Status CheckAmdObject(absl::string_view bytes, const std::string& entry, const Target& target,
                            ResourceUse* resources);

// A cubin for `target` with the kernel `entry`. Fills in `resources`.
absl::Status CheckCubin(absl::string_view bytes, const std::string& entry, const Target& target,
                        ResourceUse* resources);

// PTX text with the entry.
absl::Status CheckPtx(absl::string_view text, const std::string& entry);

}  // namespace whet
