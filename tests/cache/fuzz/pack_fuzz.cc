#include <cstddef>
#include <cstdint>

#include "src/base/files.h"
#include "tests/cache/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const whet::TemporaryDirectory* const directory =
      new whet::TemporaryDirectory(*whet::TemporaryDirectory::Create("whet-fuzz", "/dev/shm"));
  whet::FuzzPack(bytes, directory->path());
  return 0;
}
