// One FP8 attention problem, run in the emulator and compared with attention in double precision on the same bytes.
//
//   AttentionFp8Case c{.kernel = "gfx950", .architecture = "gfx950", .seq_q = 65, .seq_kv = 333};
//   AttentionFp8Result result = *RunAttentionFp8(c);
//   EXPECT_LT(result.output_error, 0.04);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/emulate/wave_program.h"
#include "tests/emulate/template_run.h"

namespace whet::emulator {

struct AttentionFp8Case {
  std::string kernel;
  std::string architecture;                           // gfx942 takes e4m3fnuz, the others e4m3
  std::vector<std::pair<std::string, int64_t>> tune;  // parameters that are not left to the kernel
  int batch = 1, heads_q = 1, heads_kv = 1, seq_q = 64, seq_kv = 64, dqk = 128, dv = 128;
  bool causal = false;
  bool lse = true;
  bool lse_shift = false;
  bool exact_exponents = true;
  int q_scale_rows = 0, k_scale_rows = 0;
  int accuracy = 2;  // every variant
  int gap = 0;       // unused elements behind each row of Q, K and O: a multiple of 16

  // Inputs: normal, of these spreads; what lies behind the last key of a row of V is NaN.
  float spread = 1.0f;      // of Q and K
  float value_mean = 0.0f;  // of V, beside a standard deviation of 1
  float sink = 0.0f;  // key 0 has this more of a direction that every query has; its value is small
  float late = 0.0f;  // the last key the same
  float growth = 1.0f;        // K's spread grows by this factor along the keys
  float scale = 0;            // 0: 2^-3 / log2(e), or 1 / sqrt(dqk) where not exact_exponents
  bool random_scales = true;  // of Q, K and V; powers of two for Q and K where exact_exponents
  int nan_k_scale = -1;       // block whose scale of K is NaN: so are the rows that see it
  int nan_query = -1, nan_key = -1, nan_value = -1;  // row, key, key (of channel 3) that hold a NaN
};

struct AttentionFp8Result {
  double output_error = 0;  // relative L2, over the rows without NaN
  double worst_row = 0;     // of a row's relative L2
  double lse_error = 0;     // largest absolute difference; infinities must agree
  int64_t wrong_nans = 0;   // outputs that are NaN and should not be, or the reverse
  bool untouched_gaps = true;
  EmulatorReport report;
};

std::string Describe(const AttentionFp8Case& c);
absl::StatusOr<AttentionFp8Result> RunAttentionFp8(const AttentionFp8Case& c,
                                                   const Player& player = PlaySource);

}  // namespace whet::emulator
