#include "tests/support/sample_template.h"

namespace whet {
namespace {

constexpr char kOperation[] = R"json({
  "name": "sample",
  "version": 3,
  "summary": "y = f(x)",
  "fields": [
    {"name": "dtype", "type": "dtype", "values": ["bf16", "f32"], "doc": "of x and y"},
    {"name": "rows", "type": "int", "min": 0, "doc": "rows of x"},
    {"name": "columns", "type": "int", "min": 1, "max": 4096},
    {"name": "bias", "type": "flag", "default": 0},
    {"name": "label", "type": "text"},
    {"name": "alignment", "type": "int", "values": [4, 8, 16], "default": 16},
    {"name": "shift", "type": "int", "default": -1}
  ],
  "derived": [
    {"name": "element_bytes", "value": "dtype == \"bf16\" ? 2 : 4"},
    {"name": "row_bytes", "value": "columns * element_bytes"}
  ],
  "requires": [
    {"that": "row_bytes % 4 == 0", "message": "a row must be a multiple of 4 bytes"}
  ],
  "arguments": [
    {"name": "x", "direction": "in", "dtype": "dtype", "shape": ["rows", "columns"], "strides": ["columns + 8", 1], "doc": "input"},
    {"name": "bias_values", "direction": "in", "dtype": "f32", "shape": ["columns"], "when": "bias"},
    {"name": "y", "direction": "out", "dtype": "dtype", "shape": ["rows", "columns"]},
    {"name": "sum", "direction": "inout", "dtype": "f32", "shape": []},
    {"name": "scale", "direction": "scalar", "dtype": "f32"}
  ],
  "tolerance": {"bf16": 0.01, "f32": 1e-5},
  "kernels": ["wide", "gpu", "cpu"],
  "reference": {"cpu": "cpu", "hip": "gpu", "cuda": "gpu"}
})json";

constexpr char kCpu[] = R"json({
  "name": "cpu",
  "platforms": ["cpu"],
  "source": "cpu.cc",
  "when": "rows < 1000000",
  "parameters": [
    {"name": "block", "values": [8, 16, 32], "default": 16, "doc": "rows of a block"},
    {"name": "vector", "values": [1, 4], "default": 4}
  ],
  "constraints": [
    {"that": "vector == 1 || has(\"avx2\")", "message": "vectors need avx2"},
    {"that": "block <= max(8, rows)", "message": "block is longer than the rows"}
  ],
  "launch": {"grid": ["ceil_div(rows, block)", 1, 1], "block": [1, 1, 1], "shared_bytes": "row_bytes"},
  "options": {"hostcxx": ["-ffast-math", "-DX=1"]},
  "cost": "100 / block + vector"
})json";

constexpr char kGpu[] = R"json({
  "name": "gpu",
  "platforms": ["hip", "cuda"],
  "source": "gpu.cu",
  "parameters": [
    {"name": "threads", "values": {"gfx94*": [256, 512], "gfx*": [128, 256], "*": [64]}, "default": {"gfx*": 256, "*": 64}}
  ],
  "launch": {
    "grid": ["rows", "1", "1"], "block": ["threads", "1", "1"],
    "shared_bytes": "threads * 64 * (1 + (arch == \"gfx90a\"))"
  }
})json";

constexpr char kWide[] = R"json({
  "name": "wide",
  "platforms": ["cuda"],
  "targets": ["sm_90*", "sm_10?"],
  "source": "wide.cu",
  "when": "dtype == \"bf16\" && platform == \"cuda\"",
  "parameters": [
    {"name": "tile", "values": [64, 128, 512], "default": 128}
  ],
  "launch": {
    "grid": ["round_up(ceil_div(rows, tile), 2)", 1, 1], "block": [384, 1, 1], "shared_bytes": "tile * 1024",
    "cluster": [2, 1, 1]
  },
  "tensor_maps": [
    {"name": "x_map", "argument": "x", "box": [64, "tile"], "swizzle": 128}
  ],
  "options": {"nvrtc": ["--use_fast_math"]}
})json";

}  // namespace

TemplateFiles SampleTemplateFiles() {
  return {
      {"sample/sample.json", kOperation},
      {"sample/cpu.json", kCpu},
      {"sample/gpu.json", kGpu},
      {"sample/wide.json", kWide},
      {"sample/cpu.cc", "#include \"common/shared.h\"\nint cpu_source;\n"},
      {"sample/gpu.cu", "#include \"common/shared.h\"\nint gpu_source;\n"},
      {"sample/wide.cu", "int wide_source;\n"},
      {"common/shared.h", "#pragma once\nint shared_header;\n"},
  };
}

FieldValues SampleFields() {
  return {{"dtype", Value("bf16")},
          {"rows", Value(int64_t{100})},
          {"columns", Value(int64_t{64})},
          {"label", Value("plain")}};
}

}  // namespace whet
