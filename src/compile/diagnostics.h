// What a compiler said, made fit for people and for comparison.
//
//   FirstDiagnostic("In file ...\nk.cc:3:1: error: expected ';'\n")  ->  "k.cc:3:1: error: expected ';'"
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace whet {

// The first line that speaks of an error, otherwise the first that says anything; one line of at
// most 300 bytes; empty for an empty log.
std::string FirstDiagnostic(absl::string_view log);

// Whether a line of the log reports an error. Vendor compilers return success with one.
bool HasErrorLine(absl::string_view log);

// The log without temporary paths: `directory` and its slash are taken out, as are the
// comgr-xxxxxx/input/ folders that AMD's compilers make inside it; control characters become
// blanks.
std::string CleanLog(absl::string_view log, absl::string_view directory);

}  // namespace whet
