// Bytes of tensor files for tests: well-formed ones to start from, and a seeded way to damage them.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace whet::testing {

inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// An .npy file whose header is `header` as it stands.
inline std::string Npy(absl::string_view header, absl::string_view data, int version = 1) {
  std::string file("\x93NUMPY", 6);
  file.push_back(static_cast<char>(version));
  file.push_back('\0');
  file += LittleEndian(header.size(), version == 1 ? 2 : 4);
  return absl::StrCat(file, header, data);
}

inline std::string Safetensors(absl::string_view header, absl::string_view data) {
  return absl::StrCat(LittleEndian(header.size(), 8), header, data);
}

// One to four random edits: bytes flipped, inserted, removed, the end cut off, digits made nines.
inline std::string Damaged(std::string file, std::mt19937_64& random) {
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits && !file.empty(); ++i) {
    const size_t at = random() % file.size();
    switch (random() % 5) {
      case 0:
        file[at] = static_cast<char>(random());
        break;
      case 1:
        file.insert(at, 1, static_cast<char>(random()));
        break;
      case 2:
        file.erase(at, 1 + random() % 4);
        break;
      case 3:
        file.resize(at);
        break;
      default: {
        const size_t digit = file.find_first_of("0123456789", at);
        if (digit != std::string::npos) file.replace(digit, 1, random() % 2 ? "99999999" : "-1");
      }
    }
  }
  return file;
}

}  // namespace whet::testing
