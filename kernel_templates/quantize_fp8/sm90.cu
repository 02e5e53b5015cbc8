// Quantisation to e4m3 on Hopper: BF16 rows of 64, 128 or 192 channels, whatever else is asked of them but one scale for a tensor
// and shifts of the log-sum-exp. Eight warps of a block compute (sm90/statistics.h, sm90/bytes.h), one fetches tiles
// (sm90/fetch.h), one tells other blocks what is known (sm90/publish.h); sm90/plan.h has the order.
#include "quantize_fp8/sm90/bytes.h"
#include "quantize_fp8/sm90/fetch.h"
#include "quantize_fp8/sm90/publish.h"

static_assert(SHAPE_DTYPE == WHET_BF16 && SHAPE_TO == WHET_E4M3 &&
                  (SHAPE_DIM == 64 || SHAPE_DIM == 128 || SHAPE_DIM == 192),
              "the fields that `when` of sm90.json asks for");

extern "C" __global__ void __launch_bounds__(LAUNCH_BLOCK_X, TUNE_BLOCKS)
    WHET_ENTRY(const unsigned short* __restrict__ x, const float* mean_in, unsigned char* y,
               float* scale, float* mean, float*, int* workspace, float multiplier, float) {
  using namespace whet::quantize;
  WHET_SHARED_MEMORY(memory);
  const Block block = {memory};
  const Arguments a = {x, mean_in, y, scale, mean, workspace, multiplier};
  Shared& shared = block.shared();
  if (whet::thread_index() == 0) {
    for (int i = 0; i < kSlots; ++i) {
      // Full: the fetching warp's lanes arrive, and so do their copies.
      whet::sm90::barrier_init(whet::sm90::shared_address(&shared.full[i]), 64);
      whet::sm90::barrier_init(whet::sm90::shared_address(&shared.empty[i]), kWarps + kStatistics);
    }
    whet::sm90::barrier_init_fence();
  }
  if (kBounds) {
    for (int i = static_cast<int>(whet::thread_index()); i < 4 * kDim; i += LAUNCH_BLOCK_X)
      block.bounds(0)[i] = 0u;
  }
  whet::barrier();
  if (whet::thread_index() >= 32 * kWarps) {
    if (whet::thread_index() < 32 * (kWarps + 1)) {
      Fetcher(a, block).run();
    } else if (kStatistics) {
      Publisher(a, block).run();
    }
    return;
  }
  Steps steps(block);
  int turn = 0, turn_of_statistics = 0;  // which of two places warps meet in
  for (;;) {
    Command command = steps.next();
    if (command.kind == kStop) return;
    if (kStatistics && command.kind != kBytes) {
      Statistics statistics;
      for (;;) {
        statistics.add(steps.tile(), command.tile,
                       kLargest && SHAPE_CENTER ? steps.channels() : nullptr);
        if (command.kind == kStatisticsLast) break;
        steps.release();
        command = steps.next();
      }
      statistics.put(a, block, turn_of_statistics, command.head);
      turn_of_statistics = 1 - turn_of_statistics;
    } else if (SHAPE_TRANSPOSE) {
      write_transposed(a, steps.tile(), command);
    } else {
      write_rows(a, block, command, steps.tile(), steps.channels(), turn);
      if (!kHeadScale) turn = 1 - turn;
    }
    steps.release();
  }
}
