// The first thing to run on a real MI300X or MI355X: clocks of the instructions that decide between schedules, and whether operands lie
// where the kernels expect them. docs/amd.md says what to do with the answers.
//
//   microbench --templates bench/hip/templates [--device N] [--json FILE]
//   microbench --templates bench/hip/templates --compile-only gfx942        needs no GPU
//
// Exit status 0, 1 when something failed or a layout is not as documented, 4 when there is no AMD GPU.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/amd/build_variant.h"
#include "bench/hip/microbenchmarks.h"
#include "src/base/files.h"
#include "src/compile/toolchains.h"
#include "src/device/devices.h"
#include "src/model/target.h"

namespace whet::amd {
namespace {

struct Flags {
  std::string templates = "bench/hip/templates";
  std::string compile_only;
  std::string json;
  std::string hiprtc;
  int device = 0;
};

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is unknown or needs a value"));
    }
    const std::string& value = arguments[i + 1];
    if (name == "--templates") {
      flags.templates = value;
    } else if (name == "--compile-only") {
      flags.compile_only = value;
    } else if (name == "--json") {
      flags.json = value;
    } else if (name == "--hiprtc") {
      flags.hiprtc = value;
    } else if (name != "--device" || !absl::SimpleAtoi(value, &flags.device)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, " is not understood"));
    }
  }
  return flags;
}

// Buffers of one launch, given back at the end.
class Buffers {
 public:
  explicit Buffers(Device& device) : device_(device) {}
  ~Buffers() {
    for (void* pointer : pointers_) device_.Free(pointer);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  absl::Status Add(int64_t bytes) {
    absl::StatusOr<DevicePointer> pointer = device_.Allocate(bytes);
    if (!pointer.ok()) return pointer.status();
    pointers_.push_back(*pointer);
    return device_.Fill(*pointer, 0, bytes, nullptr);
  }
  void* at(size_t i) const { return pointers_[i]; }
  std::vector<void*> Params() {
    std::vector<void*> params;
    for (void*& pointer : pointers_) params.push_back(&pointer);
    return params;
  }

 private:
  Device& device_;
  std::vector<void*> pointers_;
};

// Launches three times, the first to warm up, and reads the first argument back.
template <typename T>
absl::StatusOr<std::vector<T>> RunBuilt(Device& device, const BuiltVariant& built, int64_t count,
                                        int64_t sink_bytes) {
  absl::StatusOr<std::unique_ptr<Module>> module = device.LoadModule(built.object.bytes);
  if (!module.ok()) return module.status();
  absl::StatusOr<Kernel> kernel =
      (*module)->GetKernel(built.object.entry, built.launch.shared_bytes);
  if (!kernel.ok()) return kernel.status();
  Buffers buffers(device);
  if (absl::Status s = buffers.Add(count * static_cast<int64_t>(sizeof(T))); !s.ok()) return s;
  if (sink_bytes > 0) {
    if (absl::Status s = buffers.Add(sink_bytes); !s.ok()) return s;
  }
  std::vector<void*> params = buffers.Params();
  for (int i = 0; i < 3; ++i) {
    if (absl::Status s = device.Launch(*kernel, built.launch, params.data(), nullptr); !s.ok()) {
      return s;
    }
  }
  std::vector<T> values(static_cast<size_t>(count));
  absl::Status copied = device.CopyToHost(values.data(), buffers.at(0),
                                          count * static_cast<int64_t>(sizeof(T)), nullptr);
  if (!copied.ok()) return copied;
  return values;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "microbench: %s\n", std::string(status.message()).c_str());
  return 1;
}

int CompileOnly(Compiler& compiler, const MicrobenchmarkTemplates& templates,
                const Target& target) {
  const auto rates = Rates(templates, target);
  const auto layouts = Layouts(templates, target);
  if (!rates.ok()) return Fail(rates.status());
  if (!layouts.ok()) return Fail(layouts.status());
  for (const Rate& rate : *rates) {
    const auto built = BuildVariant(compiler, templates.rates, rate.problem, rate.variant, target);
    if (!built.ok()) return Fail(built.status());
    std::printf("%-40s %4d VGPRs, %d bytes\n", rate.name.c_str(),
                static_cast<int>(built->object.resources.registers),
                static_cast<int>(built->object.bytes.size()));
  }
  for (const Layout& layout : *layouts) {
    const auto variant =
        templates.layouts.DefaultVariant(layout.problems[0], target, DeviceLimits{});
    if (!variant.ok()) return Fail(variant.status());
    const auto built =
        BuildVariant(compiler, templates.layouts, layout.problems[0], *variant, target);
    if (!built.ok()) return Fail(built.status());
    std::printf("layout %-33s %4d VGPRs\n", layout.name.c_str(),
                static_cast<int>(built->object.resources.registers));
  }
  std::printf("compiled with %s %s for %s; nothing was run\n", compiler.identity().compiler.c_str(),
              compiler.identity().version.c_str(), target.ToString().c_str());
  return 0;
}

int Measure(Device& device, Compiler& compiler, const MicrobenchmarkTemplates& templates,
            const Flags& flags) {
  const Target& target = device.identity().target;
  const auto rates = Rates(templates, target);
  const auto layouts = Layouts(templates, target);
  if (!rates.ok()) return Fail(rates.status());
  if (!layouts.ok()) return Fail(layouts.status());
  std::printf("%s, %s, %s %s\n\n%-40s %10s %14s %10s\n", device.identity().product.c_str(),
              target.ToString().c_str(), compiler.identity().compiler.c_str(),
              compiler.identity().version.c_str(), "one compute unit", "clocks", "FLOP/clock",
              "B/clock");
  std::vector<std::string> json;
  bool wrong = false;
  for (const Rate& rate : *rates) {
    const auto built = BuildVariant(compiler, templates.rates, rate.problem, rate.variant, target);
    if (!built.ok()) return Fail(built.status());
    const auto clocks = RunBuilt<int64_t>(device, *built, 4 * rate.waves_per_simd,
                                          int64_t{4} * 256 * rate.waves_per_simd);
    if (!clocks.ok()) return Fail(clocks.status());
    const double each = RateClocks(rate, *clocks);
    // Four SIMDs work at once.
    const double flops = each > 0 ? 4 * rate.flops / each : 0;
    const double bytes = each > 0 ? 4 * rate.bytes / each : 0;
    std::printf("%-40s %10.2f %14.0f %10.1f\n", rate.name.c_str(), each, flops, bytes);
    json.push_back(absl::StrFormat(
        "{\"rate\":\"%s\",\"clocks\":%.3f,\"flop_per_clock\":%.1f,\"bytes_per_clock\":%.2f,"
        "\"wave_clocks\":[%s]}",
        rate.name, each, flops, bytes, absl::StrJoin(*clocks, ",")));
  }
  std::printf("\n");
  for (const Layout& layout : *layouts) {
    std::string problem;
    for (size_t digit = 0; digit < layout.problems.size() && problem.empty(); ++digit) {
      const auto variant =
          templates.layouts.DefaultVariant(layout.problems[digit], target, DeviceLimits{});
      if (!variant.ok()) return Fail(variant.status());
      const auto built =
          BuildVariant(compiler, templates.layouts, layout.problems[digit], *variant, target);
      if (!built.ok()) return Fail(built.status());
      const auto arguments = templates.layouts.Arguments(layout.problems[digit]);
      if (!arguments.ok()) return Fail(arguments.status());
      const auto d = RunBuilt<float>(device, *built, arguments->front().span_bytes / 4, 0);
      if (!d.ok()) return Fail(d.status());
      problem = CheckLayout(layout, static_cast<int>(digit), *d);
    }
    wrong |= !problem.empty();
    std::printf("layout %-33s %s\n", layout.name.c_str(),
                problem.empty() ? "as documented" : problem.c_str());
    json.push_back(
        absl::StrFormat("{\"layout\":\"%s\",\"difference\":\"%s\"}", layout.name, problem));
  }
  if (!flags.json.empty()) {
    const absl::Status written = WriteFileAtomically(
        flags.json, absl::StrCat("{\"product\":\"", device.identity().product, "\",\"target\":\"",
                                 target.ToString(), "\",\"compiler\":\"",
                                 compiler.identity().compiler, " ", compiler.identity().version,
                                 "\",\"results\":[\n", absl::StrJoin(json, ",\n"), "\n]}\n"));
    if (!written.ok()) return Fail(written);
  }
  return wrong ? 1 : 0;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags = ParseFlags(arguments);
  if (!flags.ok()) return Fail(flags.status());
  const absl::StatusOr<MicrobenchmarkTemplates> templates = LoadMicrobenchmarks(flags->templates);
  if (!templates.ok()) return Fail(templates.status());
  Toolchains toolchains({.hiprtc_library = flags->hiprtc});
  absl::StatusOr<Target> target = absl::InvalidArgumentError("");
  std::unique_ptr<Device> device;
  if (flags->compile_only.empty()) {
    absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice(Platform::kHip, flags->device, {});
    if (!opened.ok()) {
      std::fprintf(stderr, "microbench: no AMD GPU: %s; --compile-only gfx942 needs none\n",
                   std::string(opened.status().message()).c_str());
      return 4;
    }
    device = *std::move(opened);
    target = device->identity().target;
  } else {
    target = Target::Parse(flags->compile_only);
    if (!target.ok()) return Fail(target.status());
  }
  const absl::StatusOr<Compiler*> compiler = toolchains.For(*target);
  if (!compiler.ok()) return Fail(compiler.status());
  return device == nullptr ? CompileOnly(**compiler, *templates, *target)
                           : Measure(*device, **compiler, *templates, *flags);
}

}  // namespace
}  // namespace whet::amd

int main(int argc, char** argv) {
  return whet::amd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
