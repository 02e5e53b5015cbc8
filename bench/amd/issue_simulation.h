// In-order issue of one or two waves on a CDNA SIMD, from the listing of their loop: how many clocks an
// iteration takes and how busy each pipe is. docs/notebook_amd.md says how far it can be trusted.
//
//   const std::vector<WaveStep> wave = *WaveSteps(MainLoop(code), kSetR);
//   IssueResult r = SimulateIssue({wave, wave}, kSetR);
//   double per_tile = r.clocks / tiles_per_iteration / 2;
//
// A SIMD issues every 4 clocks, at most one instruction of a wave and one of each type; vector and
// matrix instructions are one type. Results of the vector pipe are ready after `vector_latency`, of the
// matrix pipe after its passes and `matrix_latency` (its own accumulator chain: its passes), both
// interlocked on the registers that the listing names. Reads of LDS and loads to LDS share the
// bandwidth among four SIMDs; only lgkmcnt waits for a read. vmcnt never waits: prefetches are taken to be early
// enough. Memory latency, bank conflicts, instruction fetch and power are not modelled.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/amd/listing.h"

namespace whet::amd {

// Clocks, unless said otherwise. Published speeds do not tell the two sets apart.
struct IssueConstants {
  int transcendental;
  int convert_to_integer;    // v_cvt_u32_f32, v_cvt_i32_f32, v_cvt_pk_fp8_f32, v_cvt_pk_bf8_f32
  int convert_from_integer;  // v_cvt_f32_u32, v_cvt_f32_i32
  int convert_to_byte;       // v_cvt_pk_u8_f32
  int vector_latency;
  int matrix_latency;
  double lds_bytes_per_clock;  // of a compute unit
  int lds_latency;
  int barrier;
  double clock_gfx950;  // effective, as a share of the nominal clock
  double clock_gfx942;
  // Packed f32 instructions start only while the matrix pipe is idle, as LLVM assumes where it takes them apart. No published speed tells.
  bool packed_alone = false;
};
inline constexpr IssueConstants kSetR = {12, 8, 8, 4, 4, 8, 128, 96, 32, 0.825, 0.506};
inline constexpr IssueConstants kSetV = {16, 12, 8, 16, 4, 8, 96, 96, 8, 0.983, 0.517};

// One instruction as the simulation sees it.
struct WaveStep {
  enum class Kind { kMatrix, kVector, kLds, kMemory, kWait, kNop, kPriority, kBarrier, kScalar };
  Kind kind = Kind::kScalar;
  bool alone = false;  // not beside a matrix instruction
  int value = 4;       // clocks, bytes, the lgkmcnt waited for (-1: none), or the priority
  std::vector<int> results;
  std::vector<int> operands;
  std::vector<int> accumulator;
};

// Unimplemented, naming it, for a matrix instruction whose passes are not known.
absl::StatusOr<std::vector<WaveStep>> WaveSteps(const std::vector<Instruction>& loop,
                                                const IssueConstants& constants);

struct IssueResult {
  double clocks = 0;  // of one iteration
  double matrix_busy = 0;
  double vector_busy = 0;
  double lds_busy = 0;
};

constexpr IssueConstants PackedAlone(IssueConstants constants) {
  constants.packed_alone = true;
  return constants;
}

// All waves run their loop until a steady state is seen. 0 clocks when they never finish (a barrier that
// not all of them reach).
IssueResult SimulateIssue(const std::vector<std::vector<WaveStep>>& waves,
                          const IssueConstants& constants);

// TFLOP/s of a whole chip whose SIMDs each take `clocks` for `flops`; only gfx942 (MI300X) and gfx950
// (MI355X) are fitted. 0 for others.
double PredictedTflops(const std::string& architecture, double flops, double clocks,
                       const IssueConstants& constants);

// The share of a full-rate kernel's speed that a causal one has: imbalance, masking, and diagonal tiles
// that are computed whole.
double CausalFactor(double seq, double rows_per_block);

}  // namespace whet::amd
