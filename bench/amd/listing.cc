#include "bench/amd/listing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"

namespace whet::amd {
namespace {

bool IsMatrix(const Instruction& x) {
  return absl::StartsWith(x.operation, "v_mfma") || absl::StartsWith(x.operation, "v_smfmac");
}

// Exchanges between lanes are on the LDS pipe, but no access.
bool IsAccess(const Instruction& x) {
  if (absl::StrContains(x.operation, "permute") || absl::StrContains(x.operation, "swizzle")) {
    return false;
  }
  for (const char* name : {"ds_", "buffer_", "global_", "flat_"}) {
    if (absl::StartsWith(x.operation, name)) return true;
  }
  return false;
}

// What a path through a loop has.
struct PathCost {
  int matrix = -1;  // -1: there is no path
  int accesses = 0;
  int others = std::numeric_limits<int>::max();
  bool BetterThan(const PathCost& other) const {
    return std::tuple(matrix, accesses, -others) >
           std::tuple(other.matrix, other.accesses, -other.others);
  }
};

// The best path from `header` back to it, through blocks of [header, latch] in address order: compilers
// lay loops out so that every edge but the back edge goes forward.
std::pair<PathCost, std::vector<size_t>> BestPath(const std::vector<Instruction>& code,
                                                  const std::vector<BasicBlock>& blocks,
                                                  size_t header, size_t latch) {
  std::vector<PathCost> best(latch + 1);
  std::vector<size_t> next(latch + 1, latch + 1);
  for (size_t b = latch + 1; b-- > header;) {
    PathCost rest;
    for (const size_t successor : blocks[b].successors) {
      if (successor == header) {
        if (PathCost{0, 0, 0}.BetterThan(rest)) {
          rest = {0, 0, 0};
          next[b] = header;
        }
      } else if (successor > b && successor <= latch && best[successor].BetterThan(rest)) {
        rest = best[successor];
        next[b] = successor;
      }
    }
    if (rest.matrix < 0) continue;
    for (size_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      (IsMatrix(code[i]) ? rest.matrix : IsAccess(code[i]) ? rest.accesses : rest.others) += 1;
    }
    best[b] = rest;
  }
  std::vector<size_t> path;
  if (best[header].matrix >= 0) {
    size_t b = header;
    do {
      path.push_back(b);
      b = next[b];
    } while (b != header);
  }
  return {best[header], path};
}

}  // namespace

std::vector<BasicBlock> BasicBlocks(const std::vector<Instruction>& code) {
  std::map<uint64_t, size_t> at;
  for (size_t i = 0; i < code.size(); ++i) at.emplace(code[i].address, i);
  std::set<size_t> starts = {0};
  std::map<size_t, size_t> target;
  for (size_t i = 0; i < code.size(); ++i) {
    const std::string& operation = code[i].operation;
    if (absl::StartsWith(operation, "s_cbranch") || absl::StartsWith(operation, "s_branch")) {
      const int64_t relative = static_cast<int16_t>(code[i].word & 0xffff);
      const auto found = at.find(code[i].address + 4 + static_cast<uint64_t>(4 * relative));
      if (found != at.end()) {
        target[i] = found->second;
        starts.insert(found->second);
      }
      starts.insert(i + 1);
    } else if (operation == "s_endpgm") {
      starts.insert(i + 1);
    }
  }
  starts.erase(starts.lower_bound(code.size()), starts.end());
  std::map<size_t, size_t> index;
  for (const size_t start : starts) index.emplace(start, index.size());
  std::vector<BasicBlock> blocks;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const auto following = std::next(start);
    BasicBlock block;
    block.begin = *start;
    block.end = following == starts.end() ? code.size() : *following;
    const size_t last = block.end - 1;
    if (target.count(last) > 0) block.successors.push_back(index.at(target.at(last)));
    if (code[last].operation != "s_branch" && code[last].operation != "s_endpgm" &&
        block.end < code.size()) {
      block.successors.push_back(blocks.size() + 1);
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::vector<size_t> MainLoopBlocks(const std::vector<Instruction>& code,
                                   const std::vector<BasicBlock>& blocks) {
  PathCost best;
  std::vector<size_t> path;
  for (size_t latch = 0; latch < blocks.size(); ++latch) {
    for (const size_t header : blocks[latch].successors) {
      if (header > latch) continue;
      auto [cost, found] = BestPath(code, blocks, header, latch);
      if (cost.matrix <= 0 || !cost.BetterThan(best)) continue;
      best = cost;
      path = std::move(found);
    }
  }
  return path;
}

std::vector<Instruction> MainLoop(const std::vector<Instruction>& code) {
  const std::vector<BasicBlock> blocks = BasicBlocks(code);
  std::vector<Instruction> loop;
  for (const size_t b : MainLoopBlocks(code, blocks)) {
    loop.insert(loop.end(), code.begin() + static_cast<int64_t>(blocks[b].begin),
                code.begin() + static_cast<int64_t>(blocks[b].end));
  }
  return loop;
}

}  // namespace whet::amd
