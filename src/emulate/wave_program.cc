#include "src/emulate/wave_program.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/emulate/block_machine.h"
#include "src/emulate/device_text.h"

namespace whet::emulator {
namespace {

// Runs a command of our own making (no text of the user's in it) and returns its exit status and what it printed.
std::pair<int, std::string> Shell(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
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

// The kernel's own line for an address: frames of the prelude are the emulator's, not the user's.
std::string Symbolise(const std::string& library, const char* base, const void* site) {
  if (site == nullptr) return "";
  // A return address belongs to the instruction after the call.
  const auto offset = static_cast<const char*>(site) - base - 1;
  const auto [status, text] =
      Shell(absl::StrCat("llvm-symbolizer-22 --obj=", library, " --functions=none --inlining ",
                         offset, " 2>/dev/null"));
  if (status != 0) return "";
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
  std::unique_ptr<WaveProgram> program(new WaveProgram());
  std::string pattern = absl::StrCat(source.scratch_directory, "/whet_emulator_XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::InternalError(
        absl::StrCat("compile ", source.entry, " for the emulator: cannot create ", pattern));
  }
  program->directory_ = pattern;
  program->library_path_ = pattern + "/kernel.so";
  const bool wave64 = absl::StartsWith(source.architecture, "gfx9");
  program->wave_size_ = wave64 ? 64 : 32;
  {
    std::ofstream file(pattern + "/kernel.cc");
    file << "#line 1 \"whet_emulator_prelude\"\n"
         << (wave64 ? "#define __GFX9__ 1\n" : "") << "#define WHET_EMULATED_WAVE_SIZE "
         << program->wave_size_ << "\n";
    // The template's prelude names the architecture, which the device prelude asks for.
    const std::string architecture = source.architecture.substr(0, source.architecture.find(':'));
    file << "#ifndef WHET_ARCH_" << architecture << "\n#define WHET_ARCH_" << architecture
         << " 1\n#endif\n";
    file << HooksText() << DevicePreludeText() << "#line 1 \"kernel\"\n"
         << source.source << "\nWHET_EMULATOR_ENTRY(" << source.entry << ")\n";
    if (!file.good())
      return absl::InternalError(
          absl::StrCat("compile ", source.entry, " for the emulator: cannot write to ", pattern));
  }
  // The instrumentation is asked for behind the driver's back, so that its run-time library is not linked: the prelude is it.
  const std::string command =
      absl::StrCat(source.compiler,
                   " -x c++ -std=c++17 -O1 -g -w -fPIC -shared -fvisibility=hidden -fno-exceptions "
                   "-fno-rtti -fno-math-errno -ffp-contract=fast -mavx2 -mfma ",
                   "-fno-vectorize -fno-slp-vectorize -Xclang -fsanitize=address -mllvm "
                   "-asan-instrumentation-with-call-threshold=0 -mllvm -asan-stack=0 ",
                   "-mllvm -asan-globals=0 -mllvm -asan-opt-same-temp=0 -mllvm "
                   "-asan-use-after-return=never -Wl,-z,defs -o ",
                   program->library_path_, " ", pattern, "/kernel.cc -lm 2>&1");
  const auto [status, log] = Shell(command);
  if (status == 127) {
    return absl::NotFoundError(absl::StrCat("compile ", source.entry, " for the emulator: ",
                                            source.compiler, " was not found; install clang-22"));
  }
  if (status != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("compile ", source.entry, " for the emulator: ", log.substr(0, 4000)));
  program->library_ = dlopen(program->library_path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (program->library_ == nullptr)
    return absl::InternalError(
        absl::StrCat("load ", source.entry, " for the emulator: ", dlerror()));
  return program;
}

WaveProgram::~WaveProgram() {
  if (library_ != nullptr) dlclose(library_);
  if (directory_.empty()) return;
  unlink(library_path_.c_str());
  unlink((directory_ + "/kernel.cc").c_str());
  rmdir(directory_.c_str());
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
  for (const RawFinding& raw : RunBlocks(machine, launch, &report)) {
    const std::string location = Symbolise(library_path_, image.begin, raw.site);
    report.findings.push_back(
        {location.empty() ? raw.text : absl::StrCat(raw.text, ", at ", location), location});
  }
  return report;
}

}  // namespace whet::emulator
