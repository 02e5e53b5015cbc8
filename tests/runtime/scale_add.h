// A small operation for tests of the runtime: y = factor * x + y, 1,024 elements to a block. Its
// parameter `flavour` makes variants that are right (0, 1), wrong (2), do not compile (3), never end
// (4), fault (5), write past the end (6), and are right and slow (7).
#pragma once

#include "src/model/kernel_template.h"

namespace whet {

// `flavours` as a JSON list, `default_flavour` one of them.
TemplateFiles ScaleAddFiles(const char* flavours, int default_flavour);

}  // namespace whet
