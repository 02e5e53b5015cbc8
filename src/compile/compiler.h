// A compiler: kernel source in, code object out.
//
//   absl::StatusOr<CodeObject> object = compiler.Compile({.source = s.source, .entry = s.entry,
//   .target = target, ...});
//
// Vendor compilers that can abort or hang run in a helper process, so Compile always comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/model/target.h"

namespace whet {

// Who compiled: goes into code keys whole.
struct ToolchainIdentity {
  std::string compiler;  // "hiprtc"
  std::string version;   // "7.14.1"; "probe-failed: <reason>" when it could not be read
  std::string build;  // tells two builds of one version apart (a digest of the library file, say)
  std::string path;   // where it was found; for people, never in a key
};

struct CompileRequest {
  std::string label;   // "rms_norm cpu:rows_per_block=4", for messages
  std::string source;  // one translation unit
  std::string entry;   // the kernel's symbol, checked in the object
  Target target;
  std::vector<std::string> options;  // beyond the compiler's own for the target
  absl::Duration timeout = absl::Minutes(5);
  int64_t memory_limit_bytes = 0;  // 0: the compiler's default
};

// What the compiler said of the kernel's appetite; -1 where it did not say.
struct ResourceUse {
  int64_t registers = -1;  // per thread (VGPRs on AMD)
  int64_t scalar_registers = -1;
  int64_t spill_bytes = -1;   // scratch or local memory per thread
  int64_t shared_bytes = -1;  // static
};

struct CodeObject {
  std::string bytes;
  std::string format;  // "elf-so", "hsaco", "cubin", "ptx"
  std::string entry;
  ResourceUse resources;
  std::string log;  // warnings; temporary paths taken out
};

class Compiler {
 public:
  virtual ~Compiler() = default;

  // (required) Found and probed once, at construction.
  virtual const ToolchainIdentity& identity() const = 0;
  // (required) Empty when it compiles for `target`, otherwise one clause saying why not.
  virtual std::string WhyNot(const Target& target) const = 0;
  // (required) The options it will be given for this request, in order, the target's included: what
  // the code key holds.
  virtual std::vector<std::string> Options(const CompileRequest& request) const = 0;
  // (required) The format of the objects it makes for `target`.
  virtual std::string ObjectFormat(const Target& target) const = 0;
  // (required) Thread-safe. On failure InvalidArgument (the source does not compile), Unimplemented
  // (not this target), DeadlineExceeded (hung), Internal (the compiler crashed, needed more than its
  // memory limit, or gave something else than a code object with the entry for the target), or what
  // kept it from being started (ResourceExhausted: disk, processes). The message holds label,
  // target, options, compiler and version, the first diagnostic, and where the whole log and the
  // source were left.
  virtual absl::StatusOr<CodeObject> Compile(const CompileRequest& request) = 0;
};

}  // namespace whet
