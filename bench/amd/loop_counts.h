// What one iteration of a loop issues, by class.
//
//   LoopCounts counts = CountLoop(MainLoop(code));
//   double valu_per_tile = counts.valu / 2.0;          // the loop is unrolled twice
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/amd/listing.h"

namespace whet::amd {

struct LoopCounts {
  std::map<std::string, int> matrix;  // operation -> number
  int matrix_total = 0;
  // Everything on the vector pipe that is no matrix instruction; the next four are parts of it.
  int valu = 0;
  int packed_f32 = 0;         // v_pk_*_f32
  int transcendental = 0;     // v_exp, v_log, v_rcp, v_rsq, v_sqrt
  int conversions = 0;        // v_cvt_*
  int accumulator_moves = 0;  // v_accvgpr_*
  int lds_read_b128 = 0;
  int lds_read_transposed = 0;  // ds_read_b64_tr_*
  int lds_read_other = 0;
  int lds_write = 0;
  int lds_exchange = 0;  // permutes: on the LDS pipe, touch no LDS
  int global_to_lds = 0;
  int global_load = 0;
  int scratch = 0;  // loads and stores of private memory: spills
  int wait = 0;
  int wait_drained = 0;  // s_waitcnt with vmcnt(0): nothing stays in flight
  int barrier = 0;
  int scalar = 0;
  int nop = 0;
};

LoopCounts CountLoop(const std::vector<Instruction>& loop);

}  // namespace whet::amd
