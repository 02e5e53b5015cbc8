// What the kernel's loads and stores do: to LDS with its shadow, to the arguments' buffers, and asynchronously from these to LDS.
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/emulate/machine.h"

namespace whet::emulator {

bool Machine::InsideBuffers(const void* address, size_t bytes, bool write, std::string* why) const {
  const char* const at = static_cast<const char*>(address);
  const EmulatorArgument* nearest = nullptr;
  for (const EmulatorArgument& argument : launch_.arguments) {
    if (argument.data == nullptr) continue;
    const char* const begin = static_cast<const char*>(argument.data);
    if (at >= begin && at + bytes <= begin + argument.bytes) {
      if (!write || argument.writable) return true;
      *why = absl::StrCat("writes ", bytes, " bytes to input ", argument.name);
      return false;
    }
    if (nearest == nullptr ||
        std::abs(at - begin) < std::abs(at - static_cast<const char*>(nearest->data)))
      nearest = &argument;
  }
  *why = absl::StrCat(write ? "writes " : "reads ", bytes, " bytes outside every buffer");
  if (nearest != nullptr) {
    absl::StrAppend(why, ", at ", at - static_cast<const char*>(nearest->data), " of ",
                    nearest->bytes, " bytes of ", nearest->name);
  }
  return false;
}

void Machine::Access(const void* address, size_t bytes, bool write, const void* site) {
  const char* const at = static_cast<const char*>(address);
  const char* const lds = reinterpret_cast<const char*>(lds_.data());
  const char* const view = reinterpret_cast<const char*>(&lane_->view);
  const auto lane = static_cast<int>(lane_->view.lane);
  if (at >= lds && at < lds + lds_.size()) {
    const auto offset = static_cast<size_t>(at - lds);
    if (offset + bytes > lds_.size()) {
      Find(absl::StrCat(write ? "writes" : "reads", " outside LDS, at byte ", offset, " of ",
                        lds_.size()),
           *wave_, lane, site);
      stop_ = true;
    } else {
      const LdsAccessor who{static_cast<uint16_t>(WaveIndex(*wave_)), static_cast<uint16_t>(lane),
                            wave_->step};
      const char* const fault =
          write ? shadow_.Write(offset, bytes, who) : shadow_.Read(offset, bytes, who);
      if (fault != nullptr) Find(absl::StrCat(fault, ", at byte ", offset), *wave_, lane, site);
    }
  } else if ((at >= lane_->stack && at < lane_->stack + kStackBytes) ||
             (at >= view && at < view + sizeof(WhetLane))) {
    return;
  } else if (at >= program_.image_begin && at < program_.image_end) {
    return;
  } else {
    std::string why;
    if (!InsideBuffers(address, bytes, write, &why)) {
      if (lds_.IsBeside(at)) {
        why = absl::StrCat(write ? "writes" : "reads", " outside LDS, at byte ", at - lds, " of ",
                           lds_.size());
      }
      Find(why, *wave_, lane, site);
      stop_ = true;
    }
  }
}

void Machine::Land(Wave* wave, size_t keep) {
  while (wave->loads.size() > keep) {
    for (size_t lane = 0; lane < wave->loads.front().size(); ++lane) {
      const AsyncLoad& load = wave->loads.front()[lane];
      if (load.bytes == 0) continue;
      if (load.from == nullptr) {
        std::memset(lds_.data() + load.lds, 0, load.bytes);
      } else {
        std::memcpy(lds_.data() + load.lds, load.from, load.bytes);
      }
      shadow_.Land(
          load.lds, load.bytes,
          {static_cast<uint16_t>(WaveIndex(*wave)), static_cast<uint16_t>(lane), wave->step});
    }
    wave->loads.pop_front();
  }
}

// The LDS address is the wave's (M0): the first lane's counts, and lane l's bytes lie l pieces behind it.
void Machine::Issue(Wave* wave, const WhetWaveOp& first) {
  const auto bytes = static_cast<size_t>(first.immediate[0]);
  std::vector<AsyncLoad> loads(wave->lanes.size());
  const char* const base = static_cast<const char*>(first.operand[1]);
  for (size_t i = 0; i < wave->lanes.size(); ++i) {
    Lane& lane = wave->lanes[i];
    if (lane.state != LaneState::kAtOperation) continue;
    const char* const to = base + i * bytes;
    const auto offset = to - reinterpret_cast<const char*>(lds_.data());
    std::string why;
    if (lane.operation->operand[1] != first.operand[1]) {
      Find("loads to LDS at an address that is not the same in all lanes of the wave", *wave,
           static_cast<int>(i), lane.site);
    }
    if (offset < 0 ||
        offset + static_cast<ptrdiff_t>(bytes) > static_cast<ptrdiff_t>(lds_.size()) ||
        offset % 4 != 0) {
      Find(absl::StrCat("loads to outside LDS, at byte ", offset, " of ", lds_.size()), *wave,
           static_cast<int>(i), lane.site);
      stop_ = true;
      return;
    }
    const char* const from = static_cast<const char*>(lane.operation->operand[0]);
    if (from != nullptr && !InsideBuffers(from, bytes, false, &why)) {
      Find(why, *wave, static_cast<int>(i), lane.site);
      stop_ = true;
      return;
    }
    const auto at = static_cast<size_t>(offset);
    const LdsAccessor who{static_cast<uint16_t>(WaveIndex(*wave)), static_cast<uint16_t>(i),
                          wave->step};
    if (const char* fault = shadow_.Issue(at, bytes, who)) {
      Find(absl::StrCat(fault, ", at byte ", at, " (asynchronous load)"), *wave,
           static_cast<int>(i), lane.site);
    }
    // What is there until the load lands is not zero by luck.
    std::memset(lds_.data() + at, 0xff, bytes);
    loads[i] = {at, from, bytes};
  }
  wave->loads.push_back(std::move(loads));
}

}  // namespace whet::emulator
