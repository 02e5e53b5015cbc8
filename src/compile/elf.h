// A bounds-checked look into 64-bit little-endian ELF files: code objects, and the build ids of
// compilers.
//
//   absl::StatusOr<ElfFile> elf = ElfFile::Parse(bytes);
//   for (const ElfSymbol& s : elf->symbols()) ...
//
// The bytes may come from a broken compiler or a damaged disk: every offset and count is checked
// against the file's size, and nothing is allocated in proportion to a number read from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace whet {

// Values of the fields below; from the ELF specification and the processor supplements.
inline constexpr uint16_t kElfTypeShared = 3;
inline constexpr uint16_t kElfMachineX86_64 = 62;
inline constexpr uint16_t kElfMachineAarch64 = 183;
inline constexpr uint16_t kElfMachineCuda = 190;
inline constexpr uint16_t kElfMachineAmdGpu = 224;
inline constexpr uint32_t kElfNoteGnuBuildId = 3;
inline constexpr uint32_t kElfNoteAmdGpuMetadata = 32;

struct ElfSection {
  absl::string_view name;
  uint32_t type = 0;
  uint32_t info = 0;
  uint64_t size = 0;
  uint64_t address = 0;    // where it is loaded; 0 for sections that are not
  absl::string_view data;  // empty for sections that take no room in the file
};

struct ElfSymbol {
  absl::string_view name;
  uint64_t value = 0;  // its address, in linked files
  uint64_t size = 0;
  bool defined = false;
  bool global = false;  // global or weak
};

struct ElfNote {
  absl::string_view owner;  // "AMDGPU", "GNU"
  uint32_t type = 0;
  absl::string_view description;
};

// Views into the bytes it was parsed from, which must outlive it.
class ElfFile {
 public:
  // InvalidArgument says what does not fit.
  static absl::StatusOr<ElfFile> Parse(absl::string_view bytes);

  uint16_t type() const { return type_; }
  uint16_t machine() const { return machine_; }
  uint32_t flags() const { return flags_; }
  const std::vector<ElfSection>& sections() const { return sections_; }
  const std::vector<ElfSymbol>& symbols() const { return symbols_; }
  const std::vector<ElfNote>& notes() const { return notes_; }

  const ElfSection* FindSection(absl::string_view name) const;
  bool Defines(absl::string_view global_symbol) const;
  // The note's description, empty when there is none.
  absl::string_view FindNote(absl::string_view owner, uint32_t type) const;

 private:
  uint16_t type_ = 0;
  uint16_t machine_ = 0;
  uint32_t flags_ = 0;
  std::vector<ElfSection> sections_;
  std::vector<ElfSymbol> symbols_;
  std::vector<ElfNote> notes_;
};

// The GNU build id of an ELF file in lower-case hexadecimal, read from its first pages; empty when
// it has none there.
std::string ReadBuildId(const std::string& path);

}  // namespace whet
