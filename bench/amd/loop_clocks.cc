// How many clocks does the main loop of a disassembled AMD kernel take?
//
//   llvm-objdump-22 -d kernel.hsaco > kernel.s
//   loop_clocks kernel.s [WAVES_PER_SIMD] [BLOCK,BLOCK,...]
//
// Prints the basic blocks of the hot path (or takes the given ones), its counts, and the clocks of an
// iteration with both sets of constants.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/amd/issue_simulation.h"
#include "bench/amd/listing.h"
#include "bench/amd/loop_counts.h"
#include "src/base/files.h"

namespace whet::amd {
namespace {

int Fail(const std::string& why) {
  std::fprintf(stderr, "loop_clocks: %s\n", why.c_str());
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return Fail("give the path of a listing of llvm-objdump -d");
  const absl::StatusOr<std::string> text = ReadFile(arguments[0], int64_t{1} << 30);
  if (!text.ok()) return Fail(std::string(text.status().message()));
  int waves = 2;
  if (arguments.size() > 1 && (!absl::SimpleAtoi(arguments[1], &waves) || waves < 1 || waves > 8)) {
    return Fail(absl::StrCat("\"", arguments[1], "\" is no number of waves from 1 to 8"));
  }
  const std::vector<Instruction> code = ParseListing(*text);
  const std::vector<BasicBlock> blocks = BasicBlocks(code);
  std::vector<size_t> path = MainLoopBlocks(code, blocks);
  if (arguments.size() > 2) {
    path.clear();
    for (absl::string_view piece : absl::StrSplit(arguments[2], ',')) {
      size_t block = 0;
      if (!absl::SimpleAtoi(piece, &block) || block >= blocks.size()) {
        return Fail(absl::StrCat("\"", piece, "\" is no block of 0 to ", blocks.size() - 1));
      }
      path.push_back(block);
    }
  }
  std::vector<Instruction> loop;
  for (const size_t b : path) {
    loop.insert(loop.end(), code.begin() + static_cast<int64_t>(blocks[b].begin),
                code.begin() + static_cast<int64_t>(blocks[b].end));
  }
  if (loop.empty()) return Fail("there is no loop with matrix instructions");
  const LoopCounts c = CountLoop(loop);
  std::printf("blocks %s\n", absl::StrJoin(path, ",").c_str());
  for (const auto& [operation, number] : c.matrix)
    std::printf("%d %s\n", number, operation.c_str());
  std::printf(
      "vector %d (packed %d, transcendental %d, conversions %d), LDS reads %d b128 %d transposed "
      "%d other, writes %d, exchanges %d, global to LDS %d, loads %d, waits %d (%d drained), "
      "barriers %d, scalar %d\n",
      c.valu, c.packed_f32, c.transcendental, c.conversions, c.lds_read_b128, c.lds_read_transposed,
      c.lds_read_other, c.lds_write, c.lds_exchange, c.global_to_lds, c.global_load, c.wait,
      c.wait_drained, c.barrier, c.scalar);
  for (const auto& [name, constants] : {std::pair("R", kSetR), std::pair("V", kSetV)}) {
    const absl::StatusOr<std::vector<WaveStep>> steps = WaveSteps(loop, constants);
    if (!steps.ok()) return Fail(std::string(steps.status().message()));
    const IssueResult r = SimulateIssue(
        std::vector<std::vector<WaveStep>>(static_cast<size_t>(waves), *steps), constants);
    std::printf("set %s: %.0f clocks, busy: matrix %.2f vector %.2f LDS %.2f\n", name, r.clocks,
                r.matrix_busy, r.vector_busy, r.lds_busy);
  }
  return 0;
}

}  // namespace
}  // namespace whet::amd

int main(int argc, char** argv) {
  return whet::amd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
