// A small operation for tests of the runtime: y = factor * x + y. Its parameter `flavour` makes variants that are right (0, 1), wrong (2) and that do not
// compile (3).
#pragma once

#include "src/model/kernel_template.h"

namespace whet {

// `flavours` as a JSON list, `default_flavour` one of them.
TemplateFiles ScaleAddFiles(const char* flavours, int default_flavour);

}  // namespace whet
