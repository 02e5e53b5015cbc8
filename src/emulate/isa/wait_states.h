// How far apart instructions must be where the hardware does not see to it, for gfx90a, gfx942 and gfx950: the numbers of LLVM's
// GCNHazardRecognizer, for the checker of listings and for the interpreter of code objects alike.
//
//   const int needed = StatesToResult(MatrixPasses(operation, chip), chip);
//
// In wait states, counted as LLVM counts: one for each instruction between the two, n + 1 for s_nop n. A matrix instruction is one of
// them too, although the next one may have to wait for the pipe: that wait is not relied on.
#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace whet::isa {

enum class Chip : unsigned char { kGfx90a, kGfx942, kGfx950 };

// Of four clocks, for the shapes that the library's kernels use.
inline int MatrixPasses(absl::string_view operation, Chip chip) {
  const bool wide = absl::StrContains(operation, "32x32x");
  if (chip == Chip::kGfx90a) return wide ? 16 : 8;
  if (absl::StrContains(operation, "_f8f6f4")) return wide ? 16 : 8;
  return wide ? 8 : 4;
}

// Until the result of a matrix instruction may be read, by another one too if it is a factor there, or overwritten by anything but one.
inline int StatesToResult(int passes, Chip chip) {
  return passes + 3 + (chip == Chip::kGfx950 && passes > 2 ? 1 : 0);
}
// Until a matrix instruction may add to registers that overlap the result; 0 where they are the same ones.
inline int StatesToAddend(int passes, bool same, Chip chip) {
  if (same) return 0;
  return passes + (chip == Chip::kGfx90a ? 0 : 1) + (chip == Chip::kGfx950 && passes > 2 ? 1 : 0);
}
// Until a vector instruction may overwrite what a matrix instruction adds to.
inline int StatesToOverwriteAddend(int passes) { return passes - 1; }

// From a vector instruction to a matrix instruction that reads what it wrote.
inline constexpr int kVectorToMatrix = 2;
// From a vector instruction's scalar result to memory instructions; to v_div_fmas, of VCC; to other vector instructions (not gfx90a).
inline constexpr int kScalarToMemory = 5;
inline constexpr int kVccToDivFmas = 4;
inline constexpr int kScalarToVector = 2;
// From a vector instruction to DPP. Not gfx90a: to v_readlane and kin; to v_permlane and kin; from a transcendental one to one that is
// none; from one that writes a part of a register to another one.
inline constexpr int kVectorToDpp = 2;
inline constexpr int kVectorToReadLane = 1;
inline constexpr int kVectorToExchange = 2;
inline constexpr int kTranscendentalToVector = 1;
inline constexpr int kPartToVector = 1;
// From a write of M0 to a load to LDS.
inline constexpr int kM0ToLoad = 1;

}  // namespace whet::isa
