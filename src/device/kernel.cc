#include "src/device/device.h"

namespace whet {

void Kernel::SetParameters(const std::vector<Argument>& arguments) {
  parameters = -1;
  parameter_widths = 0;
  if (arguments.size() > kParametersMax) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const int64_t bytes =
        argument.direction == Direction::kScalar ? DTypeBytes(argument.dtype) : sizeof(void*);
    uint64_t log2_bytes = 0;
    while ((int64_t{1} << log2_bytes) < bytes) ++log2_bytes;
    parameter_widths |= log2_bytes << (2 * i);
  }
  parameters = static_cast<int32_t>(arguments.size());
}

}  // namespace whet
