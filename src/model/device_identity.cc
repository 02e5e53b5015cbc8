#include "src/model/device_identity.h"

#include "absl/strings/str_cat.h"

namespace whet {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr int64_t kWattStep = 50;

// How many steps are nearest.
int64_t Steps(int64_t value, int64_t step) {
  return value / step + (value % step >= step / 2 ? 1 : 0);
}

}  // namespace

std::string DeviceIdentity::MemoryClass() const {
  if (memory_bytes <= 0) return "unknown";
  return absl::StrCat(Steps(memory_bytes, kGibibyte), "GiB");
}

std::string DeviceIdentity::PowerClass() const {
  if (power_cap_watts <= 0) return "unknown";
  return absl::StrCat(Steps(power_cap_watts, kWattStep) * kWattStep, "W");
}

}  // namespace whet
