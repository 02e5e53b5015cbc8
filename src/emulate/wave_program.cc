#include "src/emulate/wave_program.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "src/base/subprocess.h"
#include "src/emulate/block_machine.h"
#include "src/emulate/device_text.h"

namespace whet::emulator {
namespace {

// A clang that can be expected to know what the prelude uses.
absl::StatusOr<std::string> FindClang(const std::string& wish) {
  if (!wish.empty()) return FindProgram(wish);
  for (const char* name : {"clang-22", "clang-21", "clang-20", "/opt/rocm/llvm/bin/clang"}) {
    absl::StatusOr<std::string> path = FindProgram(name);
    if (path.ok()) return path;
  }
  return absl::NotFoundError("none of clang-22, clang-21, clang-20 is there");
}

struct Image {
  const char* name;
  const char* begin = nullptr;
  const char* end = nullptr;
};

int MatchImage(dl_phdr_info* info, size_t, void* data) {
  auto* const image = static_cast<Image*>(data);
  if (strcmp(info->dlpi_name, image->name) != 0) return 0;
  const char* const base = reinterpret_cast<const char*>(info->dlpi_addr);
  image->begin = base;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const char* const end = base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (image->end == nullptr || end > image->end) image->end = end;
  }
  return 1;
}

// The symboliser that belongs to a clang; its plain name where clang knows of none.
std::string SymbolizerOf(const std::string& clang) {
  const absl::StatusOr<SubprocessResult> run = RunSubprocess(
      {.argv = {clang, "-print-prog-name=llvm-symbolizer"}, .timeout = absl::Minutes(1)});
  std::string name = run.ok() && run->Succeeded() ? run->standard_output : "";
  absl::StripTrailingAsciiWhitespace(&name);
  return name.empty() ? "llvm-symbolizer" : name;
}

// The kernel's own line for an address: frames of the prelude are the emulator's, not the user's.
std::string Symbolise(const std::string& symbolizer, const std::string& library, const char* base,
                      const void* site) {
  if (site == nullptr) return "";
  // A return address belongs to the instruction after the call.
  const auto offset = static_cast<const char*>(site) - base - 1;
  const absl::StatusOr<SubprocessResult> run =
      RunSubprocess({.argv = {symbolizer, absl::StrCat("--obj=", library), "--functions=none",
                              "--inlining", absl::StrCat(offset)},
                     .timeout = absl::Minutes(1)});
  if (!run.ok() || !run->Succeeded()) return "";
  const std::string& text = run->standard_output;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty() || absl::StrContains(line, "whet_emulator_prelude") ||
        absl::StartsWith(line, "??"))
      continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ':');
    // Line 0: the compiler merged code of several lines; the frame it was inlined into still has one.
    if (parts.size() < 2 || parts[1] == "0") continue;
    const size_t slash = parts[0].rfind('/');
    return absl::StrCat(slash == std::string::npos ? parts[0] : parts[0].substr(slash + 1), ":",
                        parts[1]);
  }
  return "";
}

}  // namespace

EmulatorArgument EmulatorArgument::Buffer(std::string name, const void* data, size_t bytes) {
  EmulatorArgument argument;
  argument.name = std::move(name);
  argument.data = data;
  argument.bytes = bytes;
  return argument;
}

EmulatorArgument EmulatorArgument::Writable(std::string name, void* data, size_t bytes) {
  EmulatorArgument argument = Buffer(std::move(name), data, bytes);
  argument.writable = true;
  return argument;
}

absl::StatusOr<std::unique_ptr<WaveProgram>> WaveProgram::Compile(const EmulatorSource& source) {
  const std::string action = absl::StrCat("compile ", source.entry, " for the emulator: ");
  const absl::StatusOr<std::string> clang = FindClang(source.compiler);
  if (!clang.ok()) {
    return absl::NotFoundError(
        absl::StrCat(action, clang.status().message(), "; install clang-22"));
  }
  std::unique_ptr<WaveProgram> program(new WaveProgram());
  absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::Create("whet-emulator-");
  if (!directory.ok()) {
    return absl::Status(directory.status().code(),
                        absl::StrCat(action, directory.status().message()));
  }
  program->directory_ = *std::move(directory);
  program->compiler_ = *clang;
  program->library_path_ = JoinPath(program->directory_->path(), "kernel.so");
  const std::string source_path = JoinPath(program->directory_->path(), "kernel.cc");
  const bool wave64 = absl::StartsWith(source.architecture, "gfx9");
  program->wave_size_ = wave64 ? 64 : 32;
  // The template's prelude names the architecture, which the device prelude asks for.
  const std::string architecture = source.architecture.substr(0, source.architecture.find(':'));
  const absl::Status written = WriteFileAtomically(
      source_path,
      absl::StrCat("#line 1 \"whet_emulator_prelude\"\n", wave64 ? "#define __GFX9__ 1\n" : "",
                   "#define WHET_EMULATED_WAVE_SIZE ", program->wave_size_, "\n#ifndef WHET_ARCH_",
                   architecture, "\n#define WHET_ARCH_", architecture, " 1\n#endif\n", HooksText(),
                   DevicePreludeText(), "#line 1 \"kernel\"\n", source.source,
                   "\nWHET_EMULATOR_ENTRY(", source.entry, ")\n"));
  if (!written.ok()) return absl::Status(written.code(), absl::StrCat(action, written.message()));
  // The instrumentation is asked for behind the driver's back, so that its run-time library is not
  // linked: the prelude is it.
  const absl::StatusOr<SubprocessResult> run =
      RunSubprocess({.argv = {*clang,
                              "-x",
                              "c++",
                              "-std=c++17",
                              "-O1",
                              "-g",
                              "-w",
                              "-fPIC",
                              "-shared",
                              "-fvisibility=hidden",
                              "-fno-exceptions",
                              "-fno-rtti",
                              "-fno-math-errno",
                              "-ffp-contract=fast",
                              "-mavx2",
                              "-mfma",
                              "-fno-vectorize",
                              "-fno-slp-vectorize",
                              "-fno-color-diagnostics",
                              "-Xclang",
                              "-fsanitize=address",
                              "-mllvm",
                              "-asan-instrumentation-with-call-threshold=0",
                              "-mllvm",
                              "-asan-stack=0",
                              "-mllvm",
                              "-asan-globals=0",
                              "-mllvm",
                              "-asan-opt-same-temp=0",
                              "-mllvm",
                              "-asan-use-after-return=never",
                              "-Wl,-z,defs",
                              "-o",
                              program->library_path_,
                              source_path,
                              "-lm"},
                     .timeout = absl::Minutes(5)});
  if (!run.ok())
    return absl::Status(run.status().code(), absl::StrCat(action, run.status().message()));
  if (run->timed_out) {
    return absl::DeadlineExceededError(absl::StrCat(action, *clang, " ", run->Outcome()));
  }
  if (!run->Succeeded()) {
    return absl::InvalidArgumentError(absl::StrCat(action, *clang, " ", run->Outcome(), ": ",
                                                   run->standard_error.substr(0, 4000)));
  }
  program->library_ = dlopen(program->library_path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (program->library_ == nullptr) return absl::InternalError(absl::StrCat(action, dlerror()));
  return program;
}

WaveProgram::~WaveProgram() {
  if (library_ != nullptr) dlclose(library_);
}

absl::StatusOr<EmulatorReport> WaveProgram::Run(const EmulatorLaunch& launch) {
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > 1024) {
    return absl::InvalidArgumentError(absl::StrCat("run in the emulator: a block of ", threads,
                                                   " threads; 1 to 1024 are possible"));
  }
  Image image = {library_path_.c_str()};
  dl_iterate_phdr(&MatchImage, &image);
  MachineProgram machine;
  machine.entry = reinterpret_cast<void (*)(void* const*)>(dlsym(library_, "whet_emulator_entry"));
  machine.hooks = static_cast<const WhetHooks**>(dlsym(library_, "whet_hooks"));
  machine.lane = static_cast<WhetLane**>(dlsym(library_, "whet_lane"));
  machine.image_begin = image.begin;
  machine.image_end = image.end;
  machine.wave_size = wave_size_;
  if (machine.entry == nullptr || machine.hooks == nullptr || machine.lane == nullptr ||
      image.begin == nullptr) {
    return absl::InternalError(
        "run in the emulator: the compiled kernel lacks the emulator's symbols");
  }
  EmulatorReport report;
  const std::vector<RawFinding> found = RunBlocks(machine, launch, &report);
  const std::string symbolizer = found.empty() ? "" : SymbolizerOf(compiler_);
  for (const RawFinding& raw : found) {
    const std::string location = Symbolise(symbolizer, library_path_, image.begin, raw.site);
    report.findings.push_back(
        {location.empty() ? raw.text : absl::StrCat(raw.text, ", at ", location), location});
  }
  return report;
}

}  // namespace whet::emulator
