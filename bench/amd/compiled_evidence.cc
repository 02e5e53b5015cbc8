// What do AMD's compilers make of the library's kernels, and how fast is it predicted to be?
//
//   tools/fetch_hiprtc7 /tmp/hiprtc7;  tools/fetch_hiprtc7 /tmp/hiprtc70 10
//   bazel run //bench/amd:compiled_evidence -- --hiprtc /tmp/hiprtc7/libhiprtc.so.7
//       --hiprtc /tmp/hiprtc70/libhiprtc.so.7 --clang clang-22 [--target gfx950,gfx942,gfx90a]
//       [--template NAME] [--all] [--only TEXT] [--json FILE]
//
// Prints one table per target, a row for each variant and a column for each compiler; --all compiles
// every variant, not the defaults alone, --only those whose name has the text in it. Exit status 1 when a compiler fails or a code object breaks a
// rule (bench/amd/evidence_cases.h), which is then said below the table.
#include <sys/resource.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/amd/evidence.h"
#include "bench/amd/evidence_cases.h"
#include "src/base/files.h"
#include "src/compile/toolchains.h"
#include "src/model/target.h"

namespace whet::amd {
namespace {

struct Flags {
  std::vector<std::string> hiprtc;
  std::string clang;
  std::vector<std::string> targets = {"gfx950", "gfx942", "gfx90a"};
  std::string only_template;
  std::string only;  // part of a case's name
  std::string json;
  bool all = false;
};

struct NamedCompiler {
  std::unique_ptr<Toolchains> toolchains;
  Compiler* compiler;
  std::string Name() const {
    return absl::StrCat(compiler->identity().compiler, " ", compiler->identity().version);
  }
};

double ChildrenCpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--all") {
      flags.all = true;
      continue;
    }
    if (i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is unknown or needs a value"));
    }
    const std::string& value = arguments[++i];
    if (name == "--hiprtc") {
      flags.hiprtc.push_back(value);
    } else if (name == "--clang") {
      flags.clang = value;
    } else if (name == "--target") {
      flags.targets = absl::StrSplit(value, ',');
    } else if (name == "--template") {
      flags.only_template = value;
    } else if (name == "--only") {
      flags.only = value;
    } else if (name == "--json") {
      flags.json = value;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, " is unknown"));
    }
  }
  return flags;
}

absl::StatusOr<std::vector<NamedCompiler>> OpenCompilers(const Flags& flags) {
  std::vector<NamedCompiler> compilers;
  const auto open = [&](ToolchainOptions options, const char* name) -> absl::Status {
    auto toolchains = std::make_unique<Toolchains>(std::move(options));
    absl::StatusOr<Compiler*> compiler = toolchains->Named(name);
    if (!compiler.ok()) return compiler.status();
    compilers.push_back({std::move(toolchains), *compiler});
    return absl::OkStatus();
  };
  for (const std::string& library : flags.hiprtc) {
    if (absl::Status s = open({.hiprtc_library = library}, "hiprtc"); !s.ok()) return s;
  }
  if (!flags.clang.empty() || compilers.empty()) {
    if (absl::Status s = open({.amdgpu_clang = flags.clang}, "clang_amdgpu"); !s.ok()) return s;
  }
  return compilers;
}

// VGPRs, vector instructions for 32 x 64 (of attention), TFLOP/s predicted by both sets (and by the worse of them where packed
// f32 instructions do not start beside matrix instructions), CPU seconds.
std::string Cell(const EvidenceCase& one, const KernelEvidence& e, double seconds) {
  std::string text = absl::StrFormat("%d VGPR", e.resources.registers);
  if (e.resources.spill_bytes > 0)
    absl::StrAppend(&text, " +", e.resources.spill_bytes, " B scratch");
  if (one.flops_per_tile > 0 && e.matrix_flops > 0) {
    const double tiles = e.matrix_flops / one.flops_per_tile;
    absl::StrAppendFormat(&text, ", %.5g VALU", e.loop.valu / tiles);
    const double factor = one.causal ? CausalFactor(one.seq, one.rows_per_block) : 1;
    if (e.tflops_r > 0) {
      absl::StrAppendFormat(&text, ", %.0f / %.0f", factor * e.tflops_r, factor * e.tflops_v);
      if (e.tflops_packed_alone > 0) {
        absl::StrAppendFormat(&text, " (packed alone %.0f)", factor * e.tflops_packed_alone);
      }
    }
  }
  return absl::StrFormat("%s, %.1f s", text, seconds);
}

std::string LoopJson(const LoopCounts& c) {
  return absl::StrFormat(
      "{\"matrix\":%d,\"valu\":%d,\"packed_f32\":%d,\"transcendental\":%d,\"conversions\":%d,"
      "\"lds_read_b128\":%d,\"lds_read_transposed\":%d,\"lds_read_other\":%d,\"lds_write\":%d,"
      "\"global_to_lds\":%d,\"global_load\":%d,\"wait\":%d,\"wait_drained\":%d,\"barrier\":%d,"
      "\"scalar\":%d}",
      c.matrix_total, c.valu, c.packed_f32, c.transcendental, c.conversions, c.lds_read_b128,
      c.lds_read_transposed, c.lds_read_other, c.lds_write, c.global_to_lds, c.global_load, c.wait,
      c.wait_drained, c.barrier, c.scalar);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "compiled_evidence: %s\n", std::string(status.message()).c_str());
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags = ParseFlags(arguments);
  if (!flags.ok()) return Fail(flags.status());
  const absl::StatusOr<std::vector<NamedCompiler>> compilers = OpenCompilers(*flags);
  if (!compilers.ok()) return Fail(compilers.status());
  std::vector<std::string> json;
  std::vector<std::string> complaints;
  for (const std::string& text : flags->targets) {
    const absl::StatusOr<Target> target = Target::Parse(text);
    if (!target.ok()) return Fail(target.status());
    const auto cases = EvidenceCases(*target, flags->all);
    if (!cases.ok()) return Fail(cases.status());
    std::printf("\n| %s |", text.c_str());
    for (const NamedCompiler& c : *compilers) std::printf(" %s |", c.Name().c_str());
    std::printf("\n|---|");
    for (size_t i = 0; i < compilers->size(); ++i) std::printf("---|");
    std::printf("\n");
    for (const EvidenceCase& one : *cases) {
      if (!flags->only_template.empty() && one.kernel_template->name() != flags->only_template) {
        continue;
      }
      if (!absl::StrContains(one.Name(), flags->only)) continue;
      std::printf("| %s |", one.Name().c_str());
      for (const NamedCompiler& c : *compilers) {
        if (!c.compiler->WhyNot(*target).empty()) {
          std::printf(" |");
          continue;
        }
        const double begin = ChildrenCpuSeconds();
        const absl::StatusOr<KernelEvidence> e =
            Gather(*c.compiler, *one.kernel_template, one.problem, one.variant, *target);
        const double seconds = ChildrenCpuSeconds() - begin;
        const std::string where = absl::StrCat(one.Name(), ", ", text, ", ", c.Name(), ": ");
        if (!e.ok()) {
          std::printf(" failed |");
          complaints.push_back(absl::StrCat(where, e.status().message()));
          continue;
        }
        std::printf(" %s |", Cell(one, *e, seconds).c_str());
        std::fflush(stdout);
        for (const std::string& complaint : Complaints(*e, one, *target)) {
          complaints.push_back(absl::StrCat(where, complaint));
        }
        json.push_back(absl::StrFormat(
            "{\"kernel\":\"%s\",\"target\":\"%s\",\"compiler\":\"%s\",\"vgprs\":%d,\"scratch\":%d,"
            "\"clocks_r\":%.1f,\"clocks_v\":%.1f,\"tflops_r\":%.1f,\"tflops_v\":%.1f,\"cpu_s\":%."
            "2f,"
            "\"loop\":%s}",
            one.Name(), text, c.Name(), e->resources.registers, e->resources.spill_bytes,
            e->set_r.clocks, e->set_v.clocks, e->tflops_r, e->tflops_v, seconds,
            LoopJson(e->loop)));
      }
      std::printf("\n");
    }
  }
  for (const std::string& complaint : complaints) std::printf("\nbroken: %s\n", complaint.c_str());
  if (!flags->json.empty()) {
    const absl::Status written =
        WriteFileAtomically(flags->json, absl::StrCat("[\n", absl::StrJoin(json, ",\n"), "\n]\n"));
    if (!written.ok()) return Fail(written);
  }
  return complaints.empty() ? 0 : 1;
}

}  // namespace
}  // namespace whet::amd

int main(int argc, char** argv) {
  return whet::amd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
