// What the loader of an AMD GPU takes from a code object before a kernel starts.
//
//   absl::StatusOr<KernelObject> kernel = ReadKernelObject(bytes, "rms_norm_gpu");
//
// ELF with code object version 4 or newer; the bytes may be anything.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet::isa {

struct KernelArgument {
  int64_t offset = 0;
  int64_t size = 0;
  std::string kind;  // "global_buffer", "by_value", "hidden_block_count_x", ...
};

struct KernelObject {
  std::string architecture;  // "gfx950"
  uint64_t entry = 0;        // address of the first instruction
  std::vector<KernelArgument> arguments;
  int64_t argument_bytes = 0;
  // Of the kernel descriptor.
  uint32_t lds_bytes = 0;
  uint32_t scratch_bytes = 0;
  int vector_registers = 0;  // granted; both kinds
  int accumulator_base = 0;  // vector registers before the first accumulation register
  bool dispatch_pointer = false, queue_pointer = false, kernarg_pointer = false;
  bool dispatch_id = false, private_segment_size = false, private_segment_buffer = false;
  bool flat_scratch = false;
  std::array<bool, 3> workgroup_id = {};
  bool workgroup_info = false, scratch_offset = false;
  int work_item_ids = 0;  // 0: x; 1: x and y; 2: all
  int preloaded = 0;      // words of the arguments that arrive in scalar registers
  int preload_offset = 0;
  int float_mode = 0;  // rounding and denormals, as MODE has them
  bool ieee = true, clamp_nan = true;
};

// InvalidArgument with one clause on what does not fit.
absl::StatusOr<KernelObject> ReadKernelObject(absl::string_view bytes, const std::string& entry);

}  // namespace whet::isa
