#include "bench/amd/loop_counts.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace whet::amd {
namespace {

void CountVector(const std::string& operation, LoopCounts* counts) {
  ++counts->valu;
  if (absl::StartsWith(operation, "v_accvgpr")) ++counts->accumulator_moves;
  if (absl::StartsWith(operation, "v_pk_") && absl::StrContains(operation, "_f32")) {
    ++counts->packed_f32;
  }
  if (absl::StartsWith(operation, "v_cvt_")) ++counts->conversions;
  for (const char* name : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_"}) {
    if (absl::StartsWith(operation, name)) ++counts->transcendental;
  }
}

void CountLds(const std::string& operation, LoopCounts* counts) {
  if (absl::StrContains(operation, "permute") || absl::StrContains(operation, "swizzle")) {
    ++counts->lds_exchange;
  } else if (absl::StrContains(operation, "write")) {
    ++counts->lds_write;
  } else if (absl::StrContains(operation, "_tr_")) {
    ++counts->lds_read_transposed;
  } else if (absl::StrContains(operation, "b128")) {
    ++counts->lds_read_b128;
  } else {
    ++counts->lds_read_other;
  }
}

void CountMemory(const Instruction& x, LoopCounts* counts) {
  if (absl::StartsWith(x.operation, "scratch_")) {
    ++counts->scratch;
  } else if (absl::StrContains(absl::StrCat(" ", x.arguments, " "), " lds ") ||
             absl::StrContains(x.operation, "_lds_")) {
    ++counts->global_to_lds;
  } else if (absl::StrContains(x.operation, "load")) {
    ++counts->global_load;
  }
}

}  // namespace

LoopCounts CountLoop(const std::vector<Instruction>& loop) {
  LoopCounts counts;
  for (const Instruction& x : loop) {
    const std::string& operation = x.operation;
    if (absl::StartsWith(operation, "v_mfma") || absl::StartsWith(operation, "v_smfmac")) {
      ++counts.matrix[operation];
      ++counts.matrix_total;
    } else if (operation == "v_nop") {
      ++counts.nop;
    } else if (absl::StartsWith(operation, "v_")) {
      CountVector(operation, &counts);
    } else if (absl::StartsWith(operation, "ds_")) {
      CountLds(operation, &counts);
    } else if (absl::StartsWith(operation, "buffer_") || absl::StartsWith(operation, "global_") ||
               absl::StartsWith(operation, "flat_") || absl::StartsWith(operation, "scratch_")) {
      CountMemory(x, &counts);
    } else if (operation == "s_waitcnt") {
      ++counts.wait;
      if (absl::StrContains(x.arguments, "vmcnt(0)")) ++counts.wait_drained;
    } else if (operation == "s_barrier") {
      ++counts.barrier;
    } else if (operation == "s_nop") {
      ++counts.nop;
    } else {
      ++counts.scalar;
    }
  }
  return counts;
}

}  // namespace whet::amd
