#include "src/emulate/isa/code_object.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/compile/elf.h"
#include "src/compile/msgpack.h"

namespace whet::isa {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("read the code object: ", what));
}

template <typename T>
T At(absl::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool ReadArguments(MsgpackReader* reader, std::vector<KernelArgument>* arguments) {
  uint64_t count = 0;
  if (!reader->ReadArray(&count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t entries = 0;
    if (!reader->ReadMap(&entries)) return false;
    KernelArgument argument;
    for (uint64_t e = 0; e < entries; ++e) {
      absl::string_view key, text;
      if (!reader->ReadString(&key)) return false;
      if (key == ".offset") {
        if (!reader->ReadInteger(&argument.offset)) return false;
      } else if (key == ".size") {
        if (!reader->ReadInteger(&argument.size)) return false;
      } else if (key == ".value_kind") {
        if (!reader->ReadString(&text)) return false;
        argument.kind = std::string(text);
      } else if (!reader->Skip()) {
        return false;
      }
    }
    arguments->push_back(std::move(argument));
  }
  return true;
}

// The kernel's map in the metadata note: its arguments.
bool ReadMetadata(absl::string_view note, const std::string& entry, KernelObject* kernel) {
  MsgpackReader reader(note);
  uint64_t entries = 0;
  if (!reader.ReadMap(&entries)) return false;
  bool found = false;
  for (uint64_t i = 0; i < entries; ++i) {
    absl::string_view key;
    if (!reader.ReadString(&key)) return false;
    uint64_t kernels = 0;
    if (key == "amdhsa.target") {
      absl::string_view target;
      if (!reader.ReadString(&target)) return false;
      const size_t at = target.find("--");
      if (at != absl::string_view::npos) {
        const absl::string_view name = target.substr(at + 2);
        kernel->architecture = std::string(name.substr(0, name.find(':')));
      }
      continue;
    }
    if (key != "amdhsa.kernels") {
      if (!reader.Skip()) return false;
      continue;
    }
    if (!reader.ReadArray(&kernels)) return false;
    for (uint64_t k = 0; k < kernels; ++k) {
      uint64_t fields = 0;
      if (!reader.ReadMap(&fields)) return false;
      std::string name;
      std::vector<KernelArgument> arguments;
      int64_t bytes = 0;
      for (uint64_t f = 0; f < fields; ++f) {
        absl::string_view field, text;
        if (!reader.ReadString(&field)) return false;
        if (field == ".name") {
          if (!reader.ReadString(&text)) return false;
          name = std::string(text);
        } else if (field == ".args") {
          if (!ReadArguments(&reader, &arguments)) return false;
        } else if (field == ".kernarg_segment_size") {
          if (!reader.ReadInteger(&bytes)) return false;
        } else if (!reader.Skip()) {
          return false;
        }
      }
      if (name != entry) continue;
      found = true;
      kernel->arguments = std::move(arguments);
      kernel->argument_bytes = bytes;
    }
  }
  return found;
}

// https://llvm.org/docs/AMDGPUUsage.html#kernel-descriptor, for gfx90a and later members of its family.
void ReadDescriptor(absl::string_view descriptor, uint64_t address, KernelObject* kernel) {
  kernel->lds_bytes = At<uint32_t>(descriptor, 0);
  kernel->scratch_bytes = At<uint32_t>(descriptor, 4);
  kernel->entry = address + static_cast<uint64_t>(At<int64_t>(descriptor, 16));
  const auto rsrc3 = At<uint32_t>(descriptor, 44);
  const auto rsrc1 = At<uint32_t>(descriptor, 48);
  const auto rsrc2 = At<uint32_t>(descriptor, 52);
  const auto properties = At<uint16_t>(descriptor, 56);
  const auto preload = At<uint16_t>(descriptor, 58);
  kernel->vector_registers = static_cast<int>((rsrc1 & 63) + 1) * 8;
  kernel->accumulator_base = static_cast<int>((rsrc3 & 63) + 1) * 4;
  kernel->float_mode = static_cast<int>(rsrc1 >> 12 & 255);
  kernel->clamp_nan = (rsrc1 >> 21 & 1) != 0;
  kernel->ieee = (rsrc1 >> 23 & 1) != 0;
  kernel->scratch_offset = (rsrc2 & 1) != 0;
  for (size_t i = 0; i < 3; ++i) kernel->workgroup_id[i] = (rsrc2 >> (7 + i) & 1) != 0;
  kernel->workgroup_info = (rsrc2 >> 10 & 1) != 0;
  kernel->work_item_ids = static_cast<int>(rsrc2 >> 11 & 3);
  kernel->private_segment_buffer = (properties & 1) != 0;
  kernel->dispatch_pointer = (properties >> 1 & 1) != 0;
  kernel->queue_pointer = (properties >> 2 & 1) != 0;
  kernel->kernarg_pointer = (properties >> 3 & 1) != 0;
  kernel->dispatch_id = (properties >> 4 & 1) != 0;
  kernel->flat_scratch = (properties >> 5 & 1) != 0;
  kernel->private_segment_size = (properties >> 6 & 1) != 0;
  kernel->preloaded = preload & 127;
  kernel->preload_offset = preload >> 7 & 511;
}

}  // namespace

absl::StatusOr<KernelObject> ReadKernelObject(absl::string_view bytes, const std::string& entry) {
  const absl::StatusOr<ElfFile> elf = ElfFile::Parse(bytes);
  if (!elf.ok()) return elf.status();
  if (elf->machine() != kElfMachineAmdGpu) return Malformed("it is not for an AMD GPU");
  KernelObject kernel;
  if (!ReadMetadata(elf->FindNote("AMDGPU", kElfNoteAmdGpuMetadata), entry, &kernel)) {
    return Malformed(absl::StrCat("its metadata has no kernel ", entry));
  }
  for (const ElfSymbol& symbol : elf->symbols()) {
    if (!symbol.defined || symbol.name != absl::StrCat(entry, ".kd")) continue;
    for (const ElfSection& section : elf->sections()) {
      if (section.data.empty() || section.address == 0 || symbol.value < section.address ||
          symbol.value + 64 > section.address + section.data.size()) {
        continue;
      }
      ReadDescriptor(section.data.substr(symbol.value - section.address, 64), symbol.value,
                     &kernel);
      return kernel;
    }
  }
  return Malformed(absl::StrCat("it has no descriptor of ", entry));
}

}  // namespace whet::isa
