// What code is compiled for: an architecture with its feature flags.
//
//   Target t = *Target::Parse("gfx950:sramecc+:xnack-");   t.platform == Platform::kHip
//   Target::Parse("sm_90a");   Target::Parse("x86-64:avx2,avx512f,fma");   HostCpuTarget();
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

enum class Platform : uint8_t { kCpu = 1, kHip = 2, kCuda = 3 };  // never renumber

absl::string_view PlatformName(Platform platform);               // "cpu", "hip", "cuda"
absl::StatusOr<Platform> ParsePlatform(absl::string_view name);  // InvalidArgument lists the names

struct Target {
  Platform platform = Platform::kCpu;
  std::string architecture;  // "gfx950", "sm_90a", "x86-64"
  std::vector<std::string>
      features;  // hip: "sramecc+", "xnack-", cpu: "avx2", ...; sorted, each once

  // Canonical text; Parse(ToString()) gives the same target.
  std::string ToString() const;
  bool HasFeature(absl::string_view feature) const;

  // InvalidArgument names what is wrong and lists the accepted forms. HIP features need their + or
  // -; a flag given twice, or one that the architecture does not have (xnack on gfx1030, sramecc on
  // x86-64), is refused.
  static absl::StatusOr<Target> Parse(absl::string_view text);

  friend bool operator==(const Target&, const Target&) = default;
};

// The processor that runs this process, read from CPUID and checked against what the operating
// system saves (XCR0). Only the features that kernel templates ask for are listed: avx2, fma, f16c,
// avx512{f,bw,dq,vl,bf16,fp16,vnni}, amx-{tile,bf16,int8}. AMX is listed when the kernel can grant
// it; a process must still ask (arch_prctl ARCH_REQ_XCOMP_PERM) before it runs such code.
Target HostCpuTarget();

// "gfx94*" against "gfx942": * matches any run of characters, ? one.
bool MatchesGlob(absl::string_view pattern, absl::string_view text);

}  // namespace whet
