// One attention problem, run in the emulator and compared with attention in double precision.
//
//   AttentionCase c{.kernel = "portable", .architecture = "gfx90a", .seq_q = 65, .seq_kv = 33};
//   AttentionResult result = *RunAttention(c);
//   EXPECT_LT(result.output_error, 4e-3);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/emulate/wave_program.h"
#include "tests/emulate/template_run.h"

namespace whet::emulator {

struct AttentionCase {
  std::string kernel;
  std::string architecture;
  std::vector<std::pair<std::string, int64_t>>
      tune;  // parameters, those that are not left to the kernel
  bool bf16 = true;
  int batch = 1, heads_q = 1, heads_kv = 1, seq_q = 64, seq_kv = 64, dqk = 128, dv = 128;
  bool causal = false;
  bool lse = true;
  bool rows_first =
      false;  // [B, S, H, D] instead of [B, H, S, D], with `gap` unused elements behind each row
  int gap = 0;
  float spread = 1.0f;  // standard deviation of Q, K and V
  float scale = 0;      // 0: 1 / sqrt(dqk)
  int alignment = 16;
  bool hidden_values =
      false;           // the last key's value is NaN and infinity: only the last row may see it
  int nan_query = -1;  // a row of every head that holds a NaN: only it may become NaN
  std::vector<uint64_t> blocks;  // see EmulatorLaunch; rows of other blocks are not compared
};

struct AttentionResult {
  double output_error = 0;  // relative L2
  double lse_error = 0;     // largest absolute difference; infinities must agree
  int64_t rows = 0;         // compared
  bool untouched_gaps = true;
  EmulatorReport report;
};

std::string Describe(const AttentionCase& c);
absl::StatusOr<AttentionResult> RunAttention(const AttentionCase& c,
                                             const Player& player = PlaySource);

}  // namespace whet::emulator
