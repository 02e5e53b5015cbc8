// What a timing belongs to: the very product, not only its architecture.
//
//   identity.product == "AMD Instinct MI355X", identity.compute_units == 256
#pragma once

#include <cstdint>
#include <string>

#include "src/model/target.h"

namespace whet {

struct DeviceIdentity {
  Target target;
  std::string product;        // marketing name as the driver gives it
  int64_t compute_units = 0;  // CUs, SMs or processors
  int64_t memory_bytes = 0;
  int64_t power_cap_watts = 0;  // 0: unknown
  std::string partition;        // "SPX/NPS1", a MIG profile, or empty
  std::string driver;           // an attribute of a winner, never a part of its key
  int64_t l2_bytes = 0;
  int64_t shared_bytes_max = 0;  // largest shared memory of one block

  // Memory in GiB and power cap in steps of 50 W, each to the nearest, as text ("141GiB", "700W";
  // "unknown" for 0): nearby units of one product fall in one class.
  std::string MemoryClass() const;
  std::string PowerClass() const;
};

}  // namespace whet
