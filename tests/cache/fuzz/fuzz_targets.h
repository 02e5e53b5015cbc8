// What hostile bytes are fed to: by libFuzzer without end, and by mutation_test a little in every
// test run. Each returns when it is done; memory errors and broken promises abort.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace whet {

// The bytes as a whole pack, and then as the database of a well sealed one, under `directory`.
void FuzzPack(absl::string_view bytes, const std::string& directory);
// The bytes as a record, a seal, an entry file, and as the record in a well sealed entry file.
void FuzzFormats(absl::string_view bytes);

}  // namespace whet
