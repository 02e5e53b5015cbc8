#include "bench/hip/microbenchmarks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/emulate/wave_ops.h"
#include "src/runtime/builtin_templates.h"

namespace whet::amd {
namespace {

constexpr int64_t kIterations = 4096;

struct RateName {
  const char* kernel;
  int what;
  const char* name;
  const char* instruction;  // where the name is no instruction
  int64_t flops = 0;
  int64_t bytes = 0;
};

// The numbers of the parameter `what` in the kernel files.
constexpr RateName kRateNames[] = {
    {"vector", 0, "v_fma_f32", "v_fma_f32"},
    {"vector", 1, "v_pk_fma_f32", "v_pk_fma_f32"},
    {"vector", 2, "v_max3_f32", "v_max3_f32"},
    {"vector", 3, "v_exp_f32", "v_exp_f32"},
    {"vector", 4, "v_cvt_u32_f32", "v_cvt_u32_f32"},
    {"vector", 5, "v_cvt_pk_u8_f32", "v_cvt_pk_u8_f32"},
    {"vector", 6, "v_cvt_pk_fp8_f32", "v_cvt_pk_fp8_f32"},
    {"vector", 7, "v_cvt_pk_bf16_f32", "v_cvt_pk_bf16_f32"},
    {"vector", 8, "v_cvt_scalef32_pk_fp8_f32", "v_cvt_scalef32_pk_fp8_f32"},
    {"vector", 9, "v_permlane32_swap_b32", "v_permlane32_swap_b32"},
    {"matrix", 0, "product bf16", "v_mfma_f32_32x32x"},
    {"matrix", 1, "product fp8", "v_mfma_f32_32x32x"},
    {"matrix", 2, "sparse product fp8", "v_smfmac_f32_16x16x"},
    {"overlap", 0, "product bf16 | product bf16", "v_mfma_f32_32x32x"},
    {"overlap", 1, "product bf16 | v_fma_f32", "v_mfma_f32_32x32x"},
    {"overlap", 2, "product bf16 | v_pk_fma_f32", "v_mfma_f32_32x32x"},
    {"overlap", 3, "product bf16 | v_exp_f32", "v_mfma_f32_32x32x"},
    {"overlap", 4, "product bf16 | v_cvt_pk_u8_f32", "v_mfma_f32_32x32x"},
    {"lds", 0, "ds_read_b128", "ds_read_b128", 0, 1024},
    {"lds", 1, "ds_read_b64", "ds_read_b64", 0, 512},
    {"lds", 2, "s_barrier", "s_barrier"},
    {"lds", 3, "ds_read_b64_tr_b16", "ds_read_b64_tr_b16", 0, 512},
};

struct LayoutName {
  const char* name;
  int rows;
  int depth;
  int bits;
};
constexpr LayoutName kLayoutNames[] = {{"v_mfma_f32_32x32x16_bf16", 32, 16, 16},
                                       {"v_mfma_f32_16x16x32_bf16", 16, 32, 16},
                                       {"v_mfma_f32_32x32x8_bf16", 32, 8, 16},
                                       {"v_mfma_f32_16x16x16_bf16", 16, 16, 16},
                                       {"v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 8},
                                       {"v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 8},
                                       {"v_mfma_f32_32x32x64_f8f6f4", 32, 64, 8},
                                       {"v_mfma_f32_16x16x128_f8f6f4", 16, 128, 8},
                                       {"ds_read_b64_tr_b16", 0, 0, 16}};

double MatrixFlops(const RateName& rate, const Target& target) {
  if (std::string(rate.kernel) == "vector" || std::string(rate.kernel) == "lds") return 0;
  const bool new_shapes = target.architecture == "gfx950";
  const bool fp8 = std::string(rate.kernel) == "matrix" && rate.what == 1;
  if (std::string(rate.kernel) == "matrix" && rate.what == 2) {
    return 2.0 * 16 * 16 * (new_shapes ? 128 : 64);
  }
  return 2.0 * 32 * 32 * (fp8 ? (new_shapes ? 64 : 16) : (new_shapes ? 16 : 8));
}

std::string CheckTransposedRead(const std::vector<float>& d) {
  for (int lane = 0; lane < 64; ++lane) {
    for (int i = 0; i < 4; ++i) {
      // Lane l receives column l of a 4 x 16 tile whose row r lies with lanes 4 r to 4 r + 3.
      const int from = lane / 16 * 16 + 4 * i + lane % 16 / 4;
      const int expected = from * 4 + lane % 4;
      const float got = d[static_cast<size_t>(lane * 4 + i)];
      if (got != static_cast<float>(expected)) {
        return absl::StrFormat("lane %d gets element %g at %d, not %d", lane, got, i, expected);
      }
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<MicrobenchmarkTemplates> LoadMicrobenchmarks(const std::string& directory) {
  absl::StatusOr<TemplateFiles> files = ReadTemplateDirectory(directory);
  if (!files.ok()) return files.status();
  const TemplateFiles builtin = BuiltinTemplateFiles();
  files->insert(builtin.begin(), builtin.end());
  absl::StatusOr<KernelTemplate> rates = KernelTemplate::Parse("rates", *files);
  if (!rates.ok()) return rates.status();
  absl::StatusOr<KernelTemplate> layouts = KernelTemplate::Parse("layouts", *files);
  if (!layouts.ok()) return layouts.status();
  return MicrobenchmarkTemplates{*std::move(rates), *std::move(layouts)};
}

absl::StatusOr<std::vector<Rate>> Rates(const MicrobenchmarkTemplates& templates,
                                        const Target& target) {
  std::vector<Rate> rates;
  for (const int waves : {1, 2}) {
    absl::StatusOr<Problem> problem = templates.rates.MakeProblem(
        {{"iterations", Value(kIterations)}, {"waves_per_simd", Value(int64_t{waves})}});
    if (!problem.ok()) return problem.status();
    const absl::StatusOr<std::vector<Variant>> variants =
        templates.rates.Variants(*problem, target, DeviceLimits{});
    if (!variants.ok()) return variants.status();
    for (const Variant& variant : *variants) {
      for (const RateName& name : kRateNames) {
        if (variant.id() != absl::StrCat(name.kernel, ":what=", name.what)) continue;
        Rate rate{.name = absl::StrCat(
                      name.name, waves == 1 || variant.kernel == "overlap" ? "" : ", two waves"),
                  .instruction = name.instruction,
                  .problem = *problem,
                  .variant = variant};
        rate.iterations = kIterations;
        rate.waves_per_simd = waves;
        rate.flops = MatrixFlops(name, target);
        rate.bytes = static_cast<double>(name.bytes);
        rates.push_back(std::move(rate));
      }
    }
  }
  return rates;
}

double RateClocks(const Rate& rate, const std::vector<int64_t>& clocks) {
  const bool of_first = rate.variant.kernel == "overlap" && rate.variant.id() != "overlap:what=0";
  const size_t count = of_first ? std::min<size_t>(4, clocks.size()) : clocks.size();
  if (count == 0) return 0;
  const double slowest = static_cast<double>(
      *std::max_element(clocks.begin(), clocks.begin() + static_cast<int64_t>(count)));
  const bool shared = !of_first && rate.instruction != "s_barrier";
  return slowest / static_cast<double>(rate.iterations) / rate.instructions /
         (shared ? rate.waves_per_simd : 1);
}

absl::StatusOr<std::vector<Layout>> Layouts(const MicrobenchmarkTemplates& templates,
                                            const Target& target) {
  std::vector<Layout> layouts;
  for (int shape = 0; shape < 9; ++shape) {
    Layout layout;
    layout.name = kLayoutNames[shape].name;
    layout.shape = shape;
    for (int digit = 0; digit < (shape == 8 ? 1 : 2); ++digit) {
      absl::StatusOr<Problem> problem = templates.layouts.MakeProblem(
          {{"shape", Value(int64_t{shape})}, {"digit", Value(int64_t{digit})}});
      if (!problem.ok()) return problem.status();
      layout.problems.push_back(*std::move(problem));
    }
    const absl::Status fits =
        templates.layouts.DefaultVariant(layout.problems[0], target, DeviceLimits{}).status();
    if (absl::IsUnimplemented(fits)) continue;
    if (!fits.ok()) return fits;
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

std::string CheckLayout(const Layout& layout, int digit, const std::vector<float>& d) {
  if (layout.shape == 8) return CheckTransposedRead(d);
  const LayoutName& name = kLayoutNames[layout.shape];
  const emulator::MatrixShape shape = {name.rows, name.depth, name.bits};
  const int elements = shape.ElementsPerLane();
  const int registers = name.rows * name.rows / 64;
  for (int block = 0; block < 64 * elements; ++block) {
    const int hot_lane = block / elements;
    const int code = hot_lane / name.rows * elements + block % elements;
    const auto value = static_cast<float>(digit == 0 ? code % 16 : code / 16);
    for (int lane = 0; lane < 64; ++lane) {
      for (int r = 0; r < registers; ++r) {
        const float expected = shape.DRow(lane, r) == shape.Row(hot_lane) ? value : 0.0f;
        const float got = d[static_cast<size_t>((block * 64 + lane) * registers + r)];
        if (got == expected) continue;
        return absl::StrFormat(
            "with A hot at element %d of lane %d, register %d of lane %d is %g, not %g",
            block % elements, hot_lane, r, lane, got, expected);
      }
    }
  }
  return "";
}

}  // namespace whet::amd
