#include "src/compile/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace whet {
namespace {

// string_view::substr throws past the end; this does not.
std::optional<absl::string_view> Slice(absl::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return absl::string_view(bytes.data() + offset, static_cast<size_t>(size));
}

template <typename T>
std::optional<T> ReadAt(absl::string_view bytes, uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::optional<absl::string_view> slice = Slice(bytes, offset, sizeof(T));
  if (!slice) return std::nullopt;
  T value;
  std::memcpy(&value, slice->data(), sizeof value);
  return value;
}

// The zero-terminated string at `offset`; empty when it does not end inside the table.
absl::string_view StringAt(absl::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const char* begin = table.data() + offset;
  const void* end = std::memchr(begin, 0, table.size() - offset);
  if (end == nullptr) return {};
  return absl::string_view(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ELF file: ", what));
}

uint64_t RoundUpToFour(uint64_t n) { return (n + 3) & ~uint64_t{3}; }

// Stops at the first note that does not fit: what came before is still good.
void ReadNotes(absl::string_view bytes, std::vector<ElfNote>* notes) {
  uint64_t offset = 0;
  while (std::optional<Elf64_Nhdr> header = ReadAt<Elf64_Nhdr>(bytes, offset)) {
    offset += sizeof(Elf64_Nhdr);
    const std::optional<absl::string_view> name = Slice(bytes, offset, header->n_namesz);
    if (!name) return;
    offset += RoundUpToFour(header->n_namesz);
    const std::optional<absl::string_view> description = Slice(bytes, offset, header->n_descsz);
    if (!description) return;
    offset += RoundUpToFour(header->n_descsz);
    notes->push_back({StringAt(*name, 0), header->n_type, *description});
  }
}

std::optional<Elf64_Ehdr> ReadHeader(absl::string_view bytes) {
  const std::optional<Elf64_Ehdr> header = ReadAt<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return std::nullopt;
  }
  return header;
}

// Whether the program headers and all that they load are in the file.
bool HasItsSegments(absl::string_view bytes, const Elf64_Ehdr& header) {
  if (header.e_phnum == 0) return true;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const std::optional<Elf64_Phdr> segment =
        ReadAt<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || !Slice(bytes, segment->p_offset, segment->p_filesz)) return false;
  }
  return true;
}

// Notes that the program headers list; `bytes` may be only the file's beginning.
void ReadProgramNotes(absl::string_view bytes, const Elf64_Ehdr& header,
                      std::vector<ElfNote>* notes) {
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const std::optional<Elf64_Phdr> segment =
        ReadAt<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return;
    if (segment->p_type != PT_NOTE) continue;
    if (const auto slice = Slice(bytes, segment->p_offset, segment->p_filesz)) {
      ReadNotes(*slice, notes);
    }
  }
}

void ReadSymbols(absl::string_view table, absl::string_view names,
                 std::vector<ElfSymbol>* symbols) {
  for (uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= table.size();
       offset += sizeof(Elf64_Sym)) {
    const Elf64_Sym symbol = *ReadAt<Elf64_Sym>(table, offset);
    const unsigned binding = ELF64_ST_BIND(symbol.st_info);
    symbols->push_back({StringAt(names, symbol.st_name), symbol.st_value, symbol.st_size,
                        symbol.st_shndx != SHN_UNDEF,
                        binding == STB_GLOBAL || binding == STB_WEAK});
  }
}

}  // namespace

absl::StatusOr<ElfFile> ElfFile::Parse(absl::string_view bytes) {
  const std::optional<Elf64_Ehdr> header = ReadHeader(bytes);
  if (!header) return Malformed("no 64-bit little-endian header");
  ElfFile file;
  file.type_ = header->e_type;
  file.machine_ = header->e_machine;
  file.flags_ = header->e_flags;
  if (!HasItsSegments(bytes, *header)) return Malformed("segment outside the file");
  ReadProgramNotes(bytes, *header, &file.notes_);
  if (header->e_shnum == 0) return file;
  if (header->e_shentsize != sizeof(Elf64_Shdr)) return Malformed("section header size");

  const std::optional<absl::string_view> table =
      Slice(bytes, header->e_shoff, uint64_t{header->e_shnum} * sizeof(Elf64_Shdr));
  if (!table) return Malformed("section headers outside the file");
  std::vector<Elf64_Shdr> headers(header->e_shnum);
  std::memcpy(headers.data(), table->data(), table->size());
  for (const Elf64_Shdr& section : headers) {
    absl::string_view data;
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL) {
      const auto slice = Slice(bytes, section.sh_offset, section.sh_size);
      if (!slice) return Malformed("section outside the file");
      data = *slice;
    }
    file.sections_.push_back(
        {{}, section.sh_type, section.sh_info, section.sh_size, section.sh_addr, data});
  }
  if (header->e_shstrndx >= headers.size()) return Malformed("section name table");
  const absl::string_view names = file.sections_[header->e_shstrndx].data;
  for (size_t i = 0; i < headers.size(); ++i) {
    ElfSection& section = file.sections_[i];
    section.name = StringAt(names, headers[i].sh_name);
    if (section.type == SHT_SYMTAB || section.type == SHT_DYNSYM) {
      if (headers[i].sh_link >= headers.size()) return Malformed("symbol name table");
      ReadSymbols(section.data, file.sections_[headers[i].sh_link].data, &file.symbols_);
    }
    // Relocatable and stripped files have no program headers that list them.
    if (section.type == SHT_NOTE && header->e_phnum == 0) ReadNotes(section.data, &file.notes_);
  }
  return file;
}

const ElfSection* ElfFile::FindSection(absl::string_view name) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(),
                                  [&](const ElfSection& s) { return s.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

bool ElfFile::Defines(absl::string_view global_symbol) const {
  return std::any_of(symbols_.begin(), symbols_.end(), [&](const ElfSymbol& s) {
    return s.defined && s.global && s.name == global_symbol;
  });
}

absl::string_view ElfFile::FindNote(absl::string_view owner, uint32_t type) const {
  for (const ElfNote& note : notes_) {
    if (note.owner == owner && note.type == type) return note.description;
  }
  return {};
}

std::string ReadBuildId(const std::string& path) {
  // Linkers put the note right behind the program headers; the files themselves are huge.
  constexpr size_t kPrefixBytes = 64 << 10;
  std::string prefix(kPrefixBytes, '\0');
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  const ssize_t n = pread(fd, prefix.data(), prefix.size(), 0);
  close(fd);
  prefix.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const std::optional<Elf64_Ehdr> header = ReadHeader(prefix);
  if (!header) return "";
  std::vector<ElfNote> notes;
  ReadProgramNotes(prefix, *header, &notes);
  for (const ElfNote& note : notes) {
    if (note.owner == "GNU" && note.type == kElfNoteGnuBuildId) {
      return absl::BytesToHexString(note.description);
    }
  }
  return "";
}

}  // namespace whet
