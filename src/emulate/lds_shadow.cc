#include "src/emulate/lds_shadow.h"

namespace whet::emulator {

void LdsShadow::Reset() {
  bytes_.assign(bytes_.size(), Byte());
  for (auto& waits : waits_) waits.clear();
  epoch_ = 0;
}

bool LdsShadow::Published(const Byte& byte) const {
  if (byte.landed) return byte.wait < epoch_;
  const auto& waits = waits_[byte.wave];
  return byte.wait < waits.size() && waits[byte.wait] < epoch_;
}

const char* LdsShadow::Read(size_t at, size_t size, const LdsAccessor& who) {
  const char* fault = nullptr;
  for (size_t i = at; i < at + size; ++i) {
    Byte& byte = bytes_[i];
    if (byte.state == State::kUnwritten) {
      fault = "reads LDS that was never written";
    } else if (byte.state == State::kInFlight) {
      fault = "reads LDS that an asynchronous load still owns: no s_waitcnt has covered it";
    } else if (byte.wave != who.wave) {
      if (!Published(byte))
        fault = "reads LDS that another wave wrote, with no wait by the writer and barrier since";
    } else if (!byte.landed && byte.lane != who.lane && byte.step == who.step) {
      fault = "reads LDS that another lane of its wave wrote, with no step of the whole wave since";
    }
    if (byte.read_epoch != epoch_) byte.read_epoch = epoch_, byte.read_waves = 0;
    byte.read_waves |= 1u << who.wave;
  }
  return fault;
}

const char* LdsShadow::Conflict(const Byte& byte, const LdsAccessor& who) const {
  if (byte.state == State::kInFlight) return "writes LDS that an asynchronous load still owns";
  if (byte.read_epoch == epoch_ && (byte.read_waves & ~(1u << who.wave)) != 0) {
    return "writes LDS that another wave has read since the last barrier";
  }
  if (byte.state == State::kWritten && byte.wave != who.wave && !Published(byte)) {
    return "writes LDS that another wave wrote, with no wait by the writer and barrier since";
  }
  return nullptr;
}

const char* LdsShadow::Write(size_t at, size_t size, const LdsAccessor& who) {
  const char* fault = nullptr;
  const auto wait = static_cast<uint32_t>(waits_[who.wave].size());
  for (size_t i = at; i < at + size; ++i) {
    Byte& byte = bytes_[i];
    if (const char* conflict = Conflict(byte, who)) fault = conflict;
    byte.state = State::kWritten;
    byte.lane = who.lane;
    byte.wave = who.wave;
    byte.step = who.step;
    byte.landed = false;
    byte.wait = wait;
  }
  return fault;
}

const char* LdsShadow::Issue(size_t at, size_t size, const LdsAccessor& who) {
  const char* fault = nullptr;
  for (size_t i = at; i < at + size; ++i) {
    Byte& byte = bytes_[i];
    if (const char* conflict = Conflict(byte, who)) fault = conflict;
    byte.state = State::kInFlight;
    byte.wave = who.wave;
  }
  return fault;
}

void LdsShadow::Land(size_t at, size_t size, const LdsAccessor& who) {
  for (size_t i = at; i < at + size; ++i) {
    Byte& byte = bytes_[i];
    byte.state = State::kWritten;
    byte.wave = who.wave;
    byte.landed = true;
    byte.wait = epoch_;
  }
}

}  // namespace whet::emulator
