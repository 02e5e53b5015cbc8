// What the library and the compile helper say to each other: one request on the helper's standard
// input, one reply on its standard output.
//
//   std::string frame = EncodeRequest(request);        // in the library
//   std::optional<HelperRequest> r = DecodeRequest(frame);   // in the helper
//
// A frame is a magic number with the protocol's version, the payload's length, the payload and its
// checksum; anything else (a compiler's chatter, a cut pipe) is refused whole. Only the standard
// library is used, so that the helper stays small.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whet {

enum class HelperAction : uint32_t { kProbe = 1, kCompile = 2 };

enum class HelperOutcome : uint32_t {
  kOk = 0,
  kNoLibrary = 1,     // none of the candidates could be opened
  kBadLibrary = 2,    // opened, but not the library that was expected
  kCompileError = 3,  // the compiler refused the source or the options
};

struct HelperRequest {
  HelperAction action = HelperAction::kProbe;
  std::string api;                     // "hiprtc" or "nvrtc": the prefix of the symbols
  std::vector<std::string> libraries;  // paths or names, the first that opens is taken
  std::string source;
  std::string source_name;  // what diagnostics call it
  std::vector<std::string> options;
  std::string output;  // "Code", "CUBIN" or "PTX": the part between Get and Size
};

struct HelperReply {
  HelperOutcome outcome = HelperOutcome::kOk;
  std::string message;
  std::string log;    // the compiler's
  std::string bytes;  // the code object
  std::string library_path;
  std::string version;                     // empty when it could not be read
  std::string build;                       // of every library that takes part
  std::vector<std::string> architectures;  // that it says it knows; empty when it cannot say
};

std::string EncodeRequest(const HelperRequest& request);
std::optional<HelperRequest> DecodeRequest(std::string_view frame);
std::string EncodeReply(const HelperReply& reply);
std::optional<HelperReply> DecodeReply(std::string_view frame);

}  // namespace whet
