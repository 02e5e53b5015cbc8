#include "tests/emulate/assembled_kernel.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"

namespace whet::emulator {
namespace {

constexpr char kFrame[] = R"(.amdgcn_target "amdgcn-amd-amdhsa--ARCH"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
BODY
s_endpgm
.Lend:
.size kernel, .Lend-kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_next_free_vgpr 128
  .amdhsa_next_free_sgpr 32
  .amdhsa_accum_offset 64
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 8
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--ARCH
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 128
    .max_flat_workgroup_size: 1024
    .args:
      - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
)";

}  // namespace

absl::StatusOr<isa::ObjectSource> Assemble(const std::string& architecture,
                                           const std::string& body) {
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-assembled-");
  if (!directory.ok()) return directory.status();
  const std::string source = JoinPath(directory->path(), "kernel.s");
  const std::string object = JoinPath(directory->path(), "kernel.hsaco");
  const std::string text = absl::StrReplaceAll(kFrame, {{"ARCH", architecture}, {"BODY", body}});
  if (absl::Status written = WriteFileAtomically(source, text); !written.ok()) return written;
  for (const char* name : {"clang-22", "clang-21", "clang-20"}) {
    const absl::StatusOr<std::string> clang = FindProgram(name);
    if (!clang.ok()) continue;
    const absl::StatusOr<SubprocessResult> run =
        RunSubprocess({.argv = {*clang, "--target=amdgcn-amd-amdhsa",
                                absl::StrCat("-mcpu=", architecture), source, "-o", object},
                       .timeout = absl::Minutes(1)});
    if (!run.ok()) return run.status();
    if (!run->Succeeded()) return absl::InvalidArgumentError(run->standard_error);
    absl::StatusOr<std::string> bytes = ReadFile(object, /*max_bytes=*/1 << 20);
    if (!bytes.ok()) return bytes.status();
    return isa::ObjectSource{.bytes = *std::move(bytes), .entry = "kernel"};
  }
  return absl::NotFoundError("assemble: no clang of version 20 or newer is there");
}

}  // namespace whet::emulator
