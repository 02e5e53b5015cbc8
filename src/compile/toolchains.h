// The compilers of this machine: found on demand, once.
//
//   Toolchains toolchains({});
//   absl::StatusOr<Compiler*> c = toolchains.For(*Target::Parse("gfx942:sramecc+:xnack-"));
//   for (const ToolchainReport& r : toolchains.Report()) ...      // for `whet doctor`
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/compile/compiler.h"

namespace whet {

struct ToolchainOptions {
  std::string host_compiler;   // path or name; empty: clang++ (newest first), then g++
  std::string hiprtc_library;  // path of libhiprtc or of a HIP 5 libamdhip64; empty: the usual
                               // names, newest first
  std::string nvrtc_library;   // path; empty: libnvrtc.so.13, then .12
  std::string
      amdgpu_clang;  // path or name; empty: clang-22, clang-21, clang-20, /opt/rocm/llvm/bin/clang
  std::string
      helper_program;  // path of the compile helper; empty: the copy embedded in this library
  std::string failure_directory;  // where source and log of failed compiles are left; empty: under
                                  // the system's temporary directory
  std::vector<std::string> only;  // compiler names to use; empty: all
};

struct ToolchainReport {
  std::string compiler;  // "hiprtc"
  bool found = false;
  ToolchainIdentity identity;        // when found
  std::string reason;                // when not: what was looked for and where
  std::vector<std::string> targets;  // architectures it is known to compile for, for people
};

// Thread-safe. Opening a vendor library happens in the helper process, at the first request for one
// of its targets.
class Toolchains {
 public:
  explicit Toolchains(ToolchainOptions options);
  ~Toolchains();

  // The preferred compiler for `target`; lives as long as this. NotFound names each compiler that
  // was considered and why it was not taken, and what to install or set.
  absl::StatusOr<Compiler*> For(const Target& target);
  // The compiler of that name. NotFound as above.
  absl::StatusOr<Compiler*> Named(absl::string_view name);
  // Every known compiler, found or not. Probes all of them.
  std::vector<ToolchainReport> Report();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace whet
