// The shared memory of one worker: grows when a kernel wants more and never shrinks.
//
//   void* shared = scratch.AtLeast(geometry.shared_bytes);   // nullptr: no memory
//
// Not thread-safe: belongs to whoever runs the blocks.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace whet {

class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  ~ScratchMemory() { std::free(memory_); }

  // 64-byte aligned, contents unspecified; valid until the next call. nullptr for 0 bytes too.
  void* AtLeast(int64_t bytes) {
    if (bytes <= size_) return memory_;
    const int64_t rounded = (bytes + 63) / 64 * 64;
    void* larger = std::aligned_alloc(64, static_cast<size_t>(rounded));
    if (larger == nullptr) return nullptr;
    std::free(memory_);
    memory_ = larger;
    size_ = rounded;
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace whet
