#include <cstddef>
#include <cstdint>

#include "tests/cache/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  whet::FuzzFormats(bytes);
  return 0;
}
