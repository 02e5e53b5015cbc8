#include "src/compile/object_check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/compile/elf.h"
#include "src/compile/msgpack.h"

namespace whet {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kHostMachine = kElfMachineAarch64;
#else
constexpr uint16_t kHostMachine = kElfMachineX86_64;
#endif

absl::Status Unfit(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the compiler reported success, but ", what));
}

absl::StatusOr<ElfFile> ParseFor(absl::string_view bytes, uint16_t machine) {
  if (bytes.empty()) return Unfit("gave no code object");
  absl::StatusOr<ElfFile> elf = ElfFile::Parse(bytes);
  if (!elf.ok()) return Unfit(absl::StrCat("its code object is a ", elf.status().message()));
  if (elf->machine() != machine) {
    return Unfit(absl::StrCat("its code object is for ELF machine ", elf->machine(), " instead of ",
                              machine));
  }
  return elf;
}

absl::Status MissingSymbol(const std::string& symbol) {
  return Unfit(absl::StrCat("its code object does not define ", symbol,
                            " (is the kernel named so, and declared extern \"C\"?)"));
}

struct AmdMetadata {
  std::string target;  // "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"
  ResourceUse resources;
  bool has_kernel = false;
};

bool ReadAmdKernel(MsgpackReader* reader, const std::string& entry, AmdMetadata* metadata) {
  uint64_t fields = 0;
  if (!reader->ReadMap(&fields)) return false;
  ResourceUse use;
  absl::string_view name;
  for (uint64_t i = 0; i < fields; ++i) {
    absl::string_view key;
    if (!reader->ReadString(&key)) return false;
    const bool read = key == ".name"         ? reader->ReadString(&name)
                      : key == ".vgpr_count" ? reader->ReadInteger(&use.registers)
                      : key == ".sgpr_count" ? reader->ReadInteger(&use.scalar_registers)

                      : key == ".private_segment_fixed_size" ? reader->ReadInteger(&use.spill_bytes)
                      : key == ".group_segment_fixed_size" ? reader->ReadInteger(&use.shared_bytes)
                                                           : reader->Skip();
    if (!read) return false;
  }
  if (name == entry) {
    metadata->resources = use;
    metadata->has_kernel = true;
  }
  return true;
}

bool ReadAmdMetadata(absl::string_view note, const std::string& entry, AmdMetadata* metadata) {
  MsgpackReader reader(note);
  uint64_t fields = 0;
  if (!reader.ReadMap(&fields)) return false;
  for (uint64_t i = 0; i < fields; ++i) {
    absl::string_view key;
    if (!reader.ReadString(&key)) return false;
    if (key == "amdhsa.target") {
      absl::string_view target;
      if (!reader.ReadString(&target)) return false;
      metadata->target = std::string(target);
    } else if (key == "amdhsa.kernels") {
      uint64_t kernels = 0;
      if (!reader.ReadArray(&kernels)) return false;
      for (uint64_t k = 0; k < kernels; ++k) {
        if (!ReadAmdKernel(&reader, entry, metadata)) return false;
      }
    } else if (!reader.Skip()) {
      return false;
    }
  }
  return true;
}

// Flags in any order; one that the request leaves open may not be pinned by the object.
bool IsTheTarget(absl::string_view triple, const Target& target) {
  const size_t at = triple.rfind("--");
  if (at == absl::string_view::npos) return false;
  std::vector<std::string> parts = absl::StrSplit(triple.substr(at + 2), ':');
  if (parts.front() != target.architecture) return false;
  std::vector<std::string> features(parts.begin() + 1, parts.end());
  std::sort(features.begin(), features.end());
  return features == target.features;
}

std::optional<uint32_t> Word(absl::string_view bytes, size_t offset) {
  if (bytes.size() < 4 || offset > bytes.size() - 4) return std::nullopt;
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// .nv.info: records of {format, attribute, u16 size or value, payload}. For the attributes below
// the payload is {symbol index, value}.
constexpr uint8_t kNvFormatSized = 0x04;
constexpr uint8_t kNvAttributeFrameSize = 0x11;
constexpr uint8_t kNvAttributeRegisters = 0x2f;

void ReadNvInfo(const ElfFile& elf, const std::string& entry, ResourceUse* resources) {
  const ElfSection* info = elf.FindSection(".nv.info");
  if (info == nullptr) return;
  size_t offset = 0;
  while (const std::optional<uint32_t> head = Word(info->data, offset)) {
    offset += 4;
    const auto format = static_cast<uint8_t>(*head);
    const auto attribute = static_cast<uint8_t>(*head >> 8);
    if (format != kNvFormatSized) continue;
    const std::optional<uint32_t> symbol = Word(info->data, offset);
    const std::optional<uint32_t> value = Word(info->data, offset + 4);
    offset += *head >> 16;
    if (!symbol || !value || *symbol >= elf.symbols().size() ||
        elf.symbols()[*symbol].name != entry) {
      continue;
    }
    if (attribute == kNvAttributeRegisters) resources->registers = *value;
    if (attribute == kNvAttributeFrameSize) resources->spill_bytes = *value;
  }
}

int64_t CudaArchitectureNumber(absl::string_view architecture) {
  int64_t number = -1;
  absl::ConsumePrefix(&architecture, "sm_");
  while (!architecture.empty() && (architecture.back() < '0' || architecture.back() > '9')) {
    architecture.remove_suffix(1);
  }
  return absl::SimpleAtoi(architecture, &number) ? number : -1;
}

}  // namespace

absl::Status CheckSharedObject(absl::string_view bytes, const std::string& entry) {
  const absl::StatusOr<ElfFile> elf = ParseFor(bytes, kHostMachine);
  if (!elf.ok()) return elf.status();
  if (elf->type() != kElfTypeShared) return Unfit("its code object is not a shared object");
  return elf->Defines(entry) ? absl::OkStatus() : MissingSymbol(entry);
}

absl::Status CheckAmdObject(absl::string_view bytes, const std::string& entry, const Target& target,
                            ResourceUse* resources) {
  const absl::StatusOr<ElfFile> elf = ParseFor(bytes, kElfMachineAmdGpu);
  if (!elf.ok()) return elf.status();
  // A function that is not a kernel has no descriptor, and cannot be launched.
  for (const std::string& symbol : {entry, entry + ".kd"}) {
    if (!elf->Defines(symbol)) return MissingSymbol(symbol);
  }
  AmdMetadata metadata;
  if (!ReadAmdMetadata(elf->FindNote("AMDGPU", kElfNoteAmdGpuMetadata), entry, &metadata) ||
      !metadata.has_kernel) {
    return Unfit(absl::StrCat("its metadata does not describe ", entry));
  }
  if (!IsTheTarget(metadata.target, target)) {
    return Unfit(absl::StrCat("its code object is for ", metadata.target, " instead of ",
                              target.ToString()));
  }
  *resources = metadata.resources;
  return absl::OkStatus();
}

absl::Status CheckCubin(absl::string_view bytes, const std::string& entry, const Target& target,
                        ResourceUse* resources) {
  const absl::StatusOr<ElfFile> elf = ParseFor(bytes, kElfMachineCuda);
  if (!elf.ok()) return elf.status();
  const ElfSection* text = elf->FindSection(absl::StrCat(".text.", entry));
  if (text == nullptr || !elf->Defines(entry)) return MissingSymbol(entry);
  // The architecture number is the lowest byte of the flags, or the next one since CUDA 12.8.
  const int64_t number = CudaArchitectureNumber(target.architecture);
  if ((elf->flags() & 0xff) != number && (elf->flags() >> 8 & 0xff) != number) {
    return Unfit(absl::StrCat("its code object has ELF flags 0x", absl::Hex(elf->flags()),
                              ", which are not those of ", target.ToString()));
  }
  ReadNvInfo(*elf, entry, resources);
  const ElfSection* shared = elf->FindSection(absl::StrCat(".nv.shared.", entry));
  resources->shared_bytes = shared == nullptr ? 0 : static_cast<int64_t>(shared->size);
  // From sm_90 on the section starts with what the driver keeps for itself.
  constexpr int64_t kReservedBytes = 1024;
  const bool reserved = std::any_of(
      elf->symbols().begin(), elf->symbols().end(),
      [](const ElfSymbol& s) { return absl::StartsWith(s.name, "__nv_reservedSMEM_offset_0"); });
  if (reserved && resources->shared_bytes >= kReservedBytes) {
    resources->shared_bytes -= kReservedBytes;
  }
  return absl::OkStatus();
}

absl::Status CheckPtx(absl::string_view text, const std::string& entry) {
  if (!absl::StrContains(text, ".version")) return Unfit("gave something else than PTX");
  return absl::StrContains(text, absl::StrCat(".entry ", entry, "(")) ? absl::OkStatus()
                                                                      : MissingSymbol(entry);
}

}  // namespace whet
