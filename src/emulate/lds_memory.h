// LDS of an emulated block, between two stretches of address space that nothing else uses, so that an access beside it is known for
// what it is.
//
//   LdsMemory lds(65536);
//   lds.data()[0] = 1;
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace whet::emulator {

// Not thread-safe. The memory lives as long as the object.
class LdsMemory {
 public:
  explicit LdsMemory(size_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes + 2 * kMargin, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    data_ = static_cast<unsigned char*>(at) + kMargin;
  }
  ~LdsMemory() { munmap(data_ - kMargin, bytes_ + 2 * kMargin); }
  LdsMemory(const LdsMemory&) = delete;
  LdsMemory& operator=(const LdsMemory&) = delete;
  unsigned char* data() { return data_; }
  size_t size() const { return bytes_; }
  // In LDS or within a margin of it.
  bool IsBeside(const char* at) const {
    const char* const begin = reinterpret_cast<const char*>(data_);
    return at >= begin - kMargin && at < begin + bytes_ + kMargin;
  }

 private:
  static constexpr size_t kMargin = size_t{1} << 20;
  size_t bytes_;
  unsigned char* data_;
};

}  // namespace whet::emulator
