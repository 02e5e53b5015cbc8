#include "src/device/cpu/elf_check.h"

#include <elf.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "name this processor's ELF machine"
#endif

absl::Status NotWhole(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot load the code object on the cpu: ", what, "; compile it again"));
}

bool Inside(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

}  // namespace

absl::Status CheckSharedObject(absl::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) {
    return NotWhole(absl::StrCat("it has ", bytes.size(), " bytes, less than an ELF header"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return NotWhole("it is no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot load the code object on the cpu: it is for ELF machine ", header.e_machine,
        " and this processor is ", kMachine, "; compile it for this machine's target"));
  }
  if (header.e_type != ET_DYN) return NotWhole("it is no shared object");
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !Inside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), bytes.size())) {
    return NotWhole("its program headers lie outside the file");
  }
  bool loadable = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    loadable |= segment.p_type == PT_LOAD;
    if (!Inside(segment.p_offset, segment.p_filesz, bytes.size())) {
      return NotWhole("it is truncated: a segment ends beyond the file");
    }
  }
  if (!loadable) return NotWhole("it has nothing to load");
  return absl::OkStatus();
}

}  // namespace whet
