#include "tests/runtime/scale_add.h"

#include "absl/strings/str_cat.h"

namespace whet {

TemplateFiles ScaleAddFiles(const char* flavours, int default_flavour) {
  TemplateFiles files;
  files["scale_add/scale_add.json"] = R"json({
    "name": "scale_add", "version": 1, "summary": "y = factor * x + y",
    "fields": [{"name": "n", "type": "int", "min": 0},
               {"name": "alignment", "type": "int", "min": 1, "max": 16, "default": 16}],
    "arguments": [
      {"name": "x", "direction": "in", "dtype": "f32", "shape": ["n"]},
      {"name": "y", "direction": "inout", "dtype": "f32", "shape": ["n"]},
      {"name": "factor", "direction": "scalar", "dtype": "f32"}],
    "tolerance": {"f32": 1e-6},
    "kernels": ["blocks", "plain"],
    "reference": {"cpu": "plain"}
  })json";
  files["scale_add/blocks.json"] =
      absl::StrCat(R"json({
    "name": "blocks", "platforms": ["cpu"], "source": "scale_add.cc",
    "parameters": [{"name": "flavour", "values": )json",
                   flavours, R"json(, "default": )json", default_flavour,
                   R"json(}],
    "launch": {"grid": ["ceil_div(n, 1024)", "1", "1"], "block": ["1", "1", "1"], "shared_bytes": "0"}
  })json");
  files["scale_add/plain.json"] = R"json({
    "name": "plain", "platforms": ["cpu"], "source": "scale_add.cc", "parameters": [],
    "launch": {"grid": ["ceil_div(n, 1024)", "1", "1"], "block": ["1", "1", "1"], "shared_bytes": "0"}
  })json";
  files["scale_add/scale_add.cc"] = R"cc(
#include "common/cpu_block.h"

#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 3
#error this flavour does not compile
#endif

    extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
      const float* x = *static_cast<const float* const*>(args[0]);
      float* y = *static_cast<float* const*>(args[1]);
      const float factor = *static_cast<const float*>(args[2]);
      const long begin = static_cast<long>(block->index[0]) * 1024;
      const long end = begin + 1024 < SHAPE_N ? begin + 1024 : SHAPE_N;
#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 4
      // Nobody may find out that it does not end.
      for (volatile long turns = 0; x != nullptr; turns = turns + 1) {
      }
#endif
#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 5
      *(volatile int*)16 = 1;
#endif
#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 6
      if (end == SHAPE_N) y[SHAPE_N + 1] = 0;
#endif
#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 7
      volatile float sink = 0;
      for (int turn = 0; turn < 40; ++turn) {
        for (long i = begin; i < end; ++i) sink = sink + x[i];
      }
#endif
      for (long i = begin; i < end; ++i) y[i] = factor * x[i] + y[i];
#if defined(TUNE_FLAVOUR) && TUNE_FLAVOUR == 2
      y[begin] = 0;
#endif
    }
  )cc";
  return files;
}

}  // namespace whet
