// How many clocks does the main loop of a disassembled AMD kernel take?
//
//   llvm-objdump-22 -d kernel.hsaco > kernel.s
//   loop_clocks kernel.s [WAVES_PER_SIMD] [BLOCK,BLOCK,... | -] [PLACES INSTRUCTIONS SHARE]
//
// Prints the basic blocks of the hot path (or takes the given ones), its counts, and the clocks of an
// iteration with both sets of constants. The last three tell of a branch beside the hot path, at so many places of
// an iteration, that runs so many vector instructions in a share of the passes, drawn for each wave by itself: "2 110 0.53".
#include <cstddef>
#include <cstdio>
#include <random>
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

// A branch that is not on the hot path.
struct RareBranch {
  int places = 0;        // in an iteration, evenly
  int instructions = 0;  // full-rate vector ones, none of which waits for another
  double share = 0;      // of the passes that take it
};

// Several iterations with the branch where the dice of this wave say so.
std::vector<WaveStep> WithBranch(const std::vector<WaveStep>& iteration, const RareBranch& branch,
                                 unsigned seed) {
  constexpr int kIterations = 16;
  std::mt19937 random(seed);
  std::bernoulli_distribution taken(branch.share);
  std::vector<WaveStep> steps;
  for (int i = 0; i < kIterations; ++i) {
    size_t from = 0;
    for (int place = 1; place <= branch.places; ++place) {
      const size_t to =
          iteration.size() * static_cast<size_t>(place) / static_cast<size_t>(branch.places);
      steps.insert(steps.end(), iteration.begin() + static_cast<std::ptrdiff_t>(from),
                   iteration.begin() + static_cast<std::ptrdiff_t>(to));
      from = to;
      if (!taken(random)) continue;
      WaveStep vector;
      vector.kind = WaveStep::Kind::kVector;
      steps.insert(steps.end(), static_cast<size_t>(branch.instructions), vector);
    }
  }
  return steps;
}

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
  RareBranch branch;
  if (arguments.size() > 3 &&
      (arguments.size() != 6 || !absl::SimpleAtoi(arguments[3], &branch.places) ||
       !absl::SimpleAtoi(arguments[4], &branch.instructions) ||
       !absl::SimpleAtod(arguments[5], &branch.share) || branch.places < 1 || branch.places > 100 ||
       branch.instructions < 0 || branch.instructions > 10000 ||
       !(branch.share >= 0 && branch.share <= 1))) {
    return Fail("a branch is PLACES INSTRUCTIONS SHARE, as in 2 110 0.53");
  }
  if (arguments.size() > 2 && arguments[2] != "-") {
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
    if (branch.places == 0) continue;
    // Waves and draws as alike as two runs: the same dice without the branch.
    double clocks[2];
    for (const bool runs : {false, true}) {
      RareBranch one = branch;
      if (!runs) one.share = 0;
      std::vector<std::vector<WaveStep>> all;
      for (int wave = 0; wave < waves; ++wave)
        all.push_back(WithBranch(*steps, one, static_cast<unsigned>(wave + 1)));
      clocks[runs ? 1 : 0] = SimulateIssue(all, constants).clocks;
    }
    if (clocks[0] > 0)
      std::printf("set %s with the branch: %.3f times that\n", name, clocks[1] / clocks[0]);
  }
  return 0;
}

}  // namespace
}  // namespace whet::amd

int main(int argc, char** argv) {
  return whet::amd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
