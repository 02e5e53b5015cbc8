// Takes kernels out of the library's own templates, ready for the emulator.
//
//   EmulatedVariant v = *SpecializeForEmulator("rms_norm:dtype=bf16,rows=3,columns=100,x_stride=100", "gpu", {{"threads", 64}}, "gfx950");
//   auto program = WaveProgram::Compile(v.source);
//   v.launch.arguments = {...};
//   (*program)->Run(v.launch);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/emulate/wave_program.h"

namespace whet::emulator {

struct EmulatedVariant {
  std::string variant;  // canonical text
  EmulatorSource source;
  EmulatorLaunch launch;                                    // all but the arguments
  std::map<std::string, std::vector<std::string>> options;  // of each compiler, for the variant
};

// Runs a variant whose arguments have been filled in.
using Player = std::function<absl::StatusOr<EmulatorReport>(const EmulatedVariant&)>;
// Lane by lane, from the source.
absl::StatusOr<EmulatorReport> PlaySource(const EmulatedVariant& variant);

// The first variant of `kernel` whose parameters have the values given. InvalidArgument or Unimplemented as KernelTemplate says;
// NotFound where no variant of the kernel fits.
absl::StatusOr<EmulatedVariant> SpecializeForEmulator(
    const std::string& problem, const std::string& kernel,
    const std::vector<std::pair<std::string, int64_t>>& parameters,
    const std::string& architecture);

}  // namespace whet::emulator
