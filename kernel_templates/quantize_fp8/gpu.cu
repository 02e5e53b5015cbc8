// Quantisation to e4m3 on every GPU, in one pass over memory as far as its caches reach.
//
// Work is cut into items that blocks claim in order. A head goes through up to three phases: statistics (each channel's sum, least
// and largest: the mean, and without rotation the largest centred magnitude), the largest rotated magnitude (only when a rotated
// head has one scale), and the bytes. The order runs a few heads ahead with the earlier phases, so that nobody waits for long and a
// head is still in the cache when it is read again. A waiting item depends on items that were claimed before it, so the launch ends
// however few blocks run at a time. Without statistics there is one item for each block, and nothing to wait for.
#include "quantize_fp8/gpu/items.h"

// Blocks of a multiprocessor, as many as gpu.json launches for each: enough to hide memory's latency, with registers for two rows.
#if WHET_PLATFORM_CUDA
#define WHET_QUANTIZE_BOUNDS \
  __launch_bounds__(TUNE_THREADS, (SHAPE_DIM <= 128 ? 768 : 512) / TUNE_THREADS)
#else
#define WHET_QUANTIZE_BOUNDS WHET_BOUNDS(TUNE_THREADS)
#endif

extern "C" __global__ void WHET_QUANTIZE_BOUNDS WHET_ENTRY(
    const Stored* __restrict__ x, const float* __restrict__ mean_in, unsigned char* y, float* scale,
    float* mean, float* lse_shift, int* workspace, float multiplier, float logit_scale) {
  WHET_SHARED_MEMORY(memory);
  const Shared s = {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + 1024),
                    reinterpret_cast<int*>(memory + 1152), reinterpret_cast<float*>(memory + 1536),
                    memory + 1536};
  const Arguments a = {x, mean_in, y, scale, mean, lse_shift, workspace, multiplier, logit_scale};
  if (kHeads == 0) return;
  if (kSeq == 0) {
    // No rows: scales of 1 and means of 0.
    if (whet::block_index() != 0) return;
    for (Int64 i = thread(); i < kHeads * SHAPE_SCALE_BLOCKS; i += kThreads) scale[i] = 1.0f;
    if (SHAPE_CENTER == 1) {
      for (Int64 i = thread(); i < kHeads * kDim; i += kThreads) mean[i] = 0.0f;
    }
    return;
  }
  // A tile is asked for while the one before is worked on, and an item is claimed two ahead, so that the answer is there in time.
  constexpr Int64 kItems = kStatistics ? kRounds * kRoundItems : kHeads * kTiles;
  static_assert(!kStatistics || kItems < 2147000000, "claimed items are counted in an int");
  const Int64 blocks = whet::block_count();
  Int64 index = whet::block_index(), next = index + blocks;
  if (kStatistics) {
    if (thread() == 0) {
      s.word[0] = whet::add(workspace + kClaimed, 1);
      s.word[1] = whet::add(workspace + kClaimed, 1);
    }
    whet::barrier();
    index = s.word[0];
    next = s.word[1];
    whet::barrier();  // before a word is written again
  }
  Item item = item_at(index);
  whet::Raw raw;
  load_item(a, item, raw);
  for (int turn = 0; index < kItems; turn = 1 - turn) {
    if (kStatistics && thread() == 0) s.word[turn] = whet::add(workspace + kClaimed, 1);
    const Item item_next = item_at(next);
    whet::Raw raw_next;
    load_item(a, item_next, raw_next);
    take_item(a, s, item, raw);
    if (kStatistics) whet::barrier();
    index = next;
    next = kStatistics ? s.word[turn] : next + blocks;
    item = item_next;
    raw = raw_next;
  }
  if (!kStatistics) return;
  // The last block to leave puts the zeros back.
  whet::barrier();
  if (thread() == 0) {
    whet::publish();
    s.word[0] = whet::add(workspace + kFinished, 1);
  }
  whet::barrier();
  if (s.word[0] != static_cast<int>(blocks) - 1) return;
  for (Int64 i = thread(); i < kPartials; i += kThreads) workspace[i] = 0;
}
