#include "src/compile/helper/embedded_helper.h"

#include <cstddef>

// Made by the linker from the program's bytes; see this folder's BUILD.
extern "C" const char _binary_whet_compile_helper_start[];
extern "C" const char _binary_whet_compile_helper_end[];

namespace whet {

absl::string_view EmbeddedHelper() {
  return absl::string_view(
      _binary_whet_compile_helper_start,
      static_cast<size_t>(_binary_whet_compile_helper_end - _binary_whet_compile_helper_start));
}

}  // namespace whet
