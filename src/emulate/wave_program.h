// Runs a HIP kernel's source on the CPU, lane by lane, and reports what an AMD GPU would not forgive.
//
//   auto program = WaveProgram::Compile({.source = prelude + source, .entry = "rms_norm_gpu", .architecture = "gfx950"});
//   if (!program.ok()) return program.status();
//   EmulatorLaunch launch;
//   launch.grid = {4, 1, 1};
//   launch.block = {256, 1, 1};
//   launch.shared_bytes = 128;
//   launch.arguments = {EmulatorArgument::Buffer("x", x.data(), bytes), EmulatorArgument::Scalar(1e-6f)};
//   absl::StatusOr<EmulatorReport> report = (*program)->Run(launch);
//   for (const EmulatorFinding& finding : report->findings) std::cerr << finding.text << "\n";
//
// The kernel is compiled by clang for the host behind device_prelude.h, with the compiler's address instrumentation, whose calls
// lead here. Lanes are fibers. A wave executes a cross-lane or matrix operation once all its lanes have reached it; lanes between
// two such operations run one after another, so an exchange through LDS inside a wave needs a wave barrier between write and read.
//
// Reported: reads of LDS bytes that were never written, that another wave wrote without wait and barrier, or that an asynchronous
// load still owns; overwriting what others may be reading; accesses outside LDS and outside the arguments' buffers, and writes to
// inputs (these end the run); lanes of a wave or waves of a block that disagree on what comes next; waves that pass different
// numbers of barriers; blocks that do not end. Only asynchronous loads count for vmcnt: the kernel's other loads would make a wait cover more, never less.
// Not modelled: time, bank conflicts, instruction hazards, memory order between blocks, atomics (executed plainly).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/base/files.h"

namespace whet::emulator {

struct EmulatorArgument {
  // A pointer to memory that the caller keeps alive during Run. A null pointer with 0 bytes is passed on as null.
  static EmulatorArgument Buffer(std::string name, const void* data, size_t bytes);
  static EmulatorArgument Writable(std::string name, void* data, size_t bytes);
  template <typename T>
  static EmulatorArgument Scalar(T value) {
    EmulatorArgument argument;
    argument.scalar.assign(reinterpret_cast<const char*>(&value),
                           reinterpret_cast<const char*>(&value) + sizeof(value));
    return argument;
  }

  std::string name;
  const void* data = nullptr;
  size_t bytes = 0;
  bool writable = false;
  std::string scalar;  // its bytes, where the argument is no pointer
};

struct EmulatorSource {
  std::string
      source;  // one translation unit: the template's prelude, then the source with its includes in place
  std::string entry;         // the kernel's symbol
  std::string architecture;  // decides the flavour of FP8 and the size of a wave: "gfx950"
  // Path or name of a clang; empty: the newest of clang-22 to clang-20.
  std::string compiler;
};

struct EmulatorLaunch {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {64, 1, 1};
  size_t shared_bytes = 0;
  std::vector<EmulatorArgument> arguments;
  std::vector<uint64_t> blocks;  // linear indices, x fastest; empty: all of them
  size_t max_findings = 20;      // a run ends once it has found so many different ones
  // A block that takes longer is given up: that it does not end is the run's last finding. A block of attention takes seconds.
  absl::Duration block_limit = absl::Minutes(10);
  // (optional) Called in the calling thread after each block: how many of how many are done.
  std::function<void(uint64_t done, uint64_t of)> progress;
};

struct EmulatorFinding {
  std::string
      text;  // "lane 5 of wave 2 (block 0) reads LDS that was never written, at byte 128 ... at kernel.cu:57"
  std::string location;  // file:line of the kernel, or "" where the compiler left no trace
};

struct EmulatorReport {
  std::vector<EmulatorFinding> findings;
  uint64_t matrix_operations = 0;  // per wave
  uint64_t wave_operations = 0;
  uint64_t barriers = 0;  // per block
};

class WaveProgram {
 public:
  // Fails with InvalidArgument and the compiler's diagnostics where the source does not compile, NotFound where there is no
  // compiler, DeadlineExceeded where it takes longer than five minutes.
  static absl::StatusOr<std::unique_ptr<WaveProgram>> Compile(const EmulatorSource& source);
  ~WaveProgram();
  WaveProgram(const WaveProgram&) = delete;
  WaveProgram& operator=(const WaveProgram&) = delete;

  // Runs the blocks one after another in the calling thread. What the kernel does wrong is in the report; a failed status means that
  // the launch itself is impossible. A program runs one launch at a time.
  absl::StatusOr<EmulatorReport> Run(const EmulatorLaunch& launch);

 private:
  WaveProgram() = default;

  std::optional<TemporaryDirectory> directory_;
  std::string library_path_;
  std::string compiler_;
  void* library_ = nullptr;
  int wave_size_ = 64;
};

}  // namespace whet::emulator
