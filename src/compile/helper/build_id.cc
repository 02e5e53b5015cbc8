#include "src/compile/helper/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace whet {
namespace {

std::string Hex(const unsigned char* bytes, size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text.push_back(kDigits[bytes[i] >> 4]);
    text.push_back(kDigits[bytes[i] & 15]);
  }
  return text;
}

// From the note in memory; the loader has mapped it.
std::string GnuBuildId(const dl_phdr_info& info) {
  constexpr size_t kAlign = 4;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || segment.p_align > kAlign) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info.dlpi_addr + segment.p_vaddr);
    size_t left = segment.p_memsz;
    ElfW(Nhdr) note;
    while (left >= sizeof note) {
      std::memcpy(&note, at, sizeof note);
      const size_t name = (size_t{note.n_namesz} + kAlign - 1) / kAlign * kAlign;
      const size_t size = (size_t{note.n_descsz} + kAlign - 1) / kAlign * kAlign;
      if (sizeof note + name + size > left) break;
      const unsigned char* owner = at + sizeof note;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(owner, "GNU", 4) == 0) {
        return Hex(owner + name, note.n_descsz);
      }
      at += sizeof note + name + size;
      left -= sizeof note + name + size;
    }
  }
  return "";
}

std::string FileDigest(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "unreadable";
  struct stat info;
  std::string digest = "unreadable";
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    const auto size = static_cast<size_t>(info.st_size);
    void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
      digest = Hex(canonical.digest, sizeof canonical.digest);
      munmap(bytes, size);
    }
  }
  close(fd);
  return digest;
}

struct Collection {
  const std::vector<std::string>* parts;
  std::vector<std::string> found;
};

int Collect(dl_phdr_info* info, size_t, void* argument) {
  auto* collection = static_cast<Collection*>(argument);
  // Links resolved: one library may be opened under several names.
  char resolved[PATH_MAX];
  const std::string path =
      realpath(info->dlpi_name, resolved) != nullptr ? resolved : info->dlpi_name;
  const std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string& part : *collection->parts) {
    if (name.find(part) == std::string::npos) continue;
    std::string id = GnuBuildId(*info);
    if (id.empty()) id = FileDigest(path.c_str());
    collection->found.push_back(name + ":" + id);
    break;
  }
  return 0;
}

}  // namespace

std::string DescribeLoadedLibraries(const std::vector<std::string>& parts) {
  Collection collection = {&parts, {}};
  dl_iterate_phdr(Collect, &collection);
  std::sort(collection.found.begin(), collection.found.end());
  std::string text;
  for (const std::string& entry : collection.found) text += (text.empty() ? "" : " ") + entry;
  return text;
}

}  // namespace whet
