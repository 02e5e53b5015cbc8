// What is known about each byte of a block's LDS: who wrote it, whether that write can be relied on, who has read it since.
//
//   LdsShadow shadow(bytes, waves);
//   if (const char* fault = shadow.Read(at, 16, {.wave = 1, .lane = 3})) report(fault);
//
// The rules, in terms of what the hardware promises:
//  - a wave sees its own earlier writes, lane by lane in program order; another lane's only after a step of the whole wave;
//  - another wave's writes are seen once the writer has waited for them and a barrier has been passed after that;
//  - an asynchronous load owns its bytes from its issue to the wait that covers it;
//  - bytes that another wave may still be reading, with no barrier in between, must not be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace whet::emulator {

struct LdsAccessor {
  uint16_t wave;
  uint16_t lane;
  uint32_t step;  // wave-wide operations that the wave has executed
};

class LdsShadow {
 public:
  LdsShadow(size_t bytes, size_t waves) : bytes_(bytes), waits_(waves) {}

  size_t size() const { return bytes_.size(); }
  // Forgets everything: a new block has started.
  void Reset();

  // Each returns null, or a literal that says what is wrong. The range must lie inside.
  const char* Read(size_t at, size_t size, const LdsAccessor& who);
  const char* Write(size_t at, size_t size, const LdsAccessor& who);
  // An asynchronous load starts to own the bytes, or has landed.
  const char* Issue(size_t at, size_t size, const LdsAccessor& who);
  void Land(size_t at, size_t size, const LdsAccessor& who);

  // The wave has waited for its LDS accesses; all waves have passed a barrier.
  void Wait(size_t wave) { waits_[wave].push_back(epoch_); }
  void Barrier() { ++epoch_; }

 private:
  enum class State : uint8_t { kUnwritten, kWritten, kInFlight };
  struct Byte {
    State state = State::kUnwritten;
    uint16_t lane = 0;
    uint16_t wave = 0;
    uint32_t step = 0;
    bool landed = false;  // written by an asynchronous load, settled in the epoch `wait`
    uint32_t wait = 0;    // else: the writer's wait (counted from 0) that settles the write
    uint32_t read_epoch = 0;
    uint32_t read_waves = 0;  // bit per wave that has read in read_epoch
  };

  bool Published(const Byte& byte) const;
  // Null, or why `who` may not overwrite the byte.
  const char* Conflict(const Byte& byte, const LdsAccessor& who) const;

  std::vector<Byte> bytes_;
  std::vector<std::vector<uint32_t>> waits_;  // per wave, the epoch of each wait
  uint32_t epoch_ = 0;
};

}  // namespace whet::emulator
