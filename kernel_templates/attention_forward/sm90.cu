// Attention forward for NVIDIA Hopper in BF16.
//
// A block has kWarpgroups consumer warpgroups, each with 64 query rows of one head, and a producer warp that feeds them K and V tiles
// through rings of shared memory with the copy engine. Scores, probabilities and output stay in registers: the scores' accumulator layout
// is, packed to BF16, the layout of the left operand of P V.
//
// Tiles of keys are taken from the last visible one down to the first, so that those that need a mask come first. Three overlaps hide the
// softmax behind the matrix products:
//   overlap    a warpgroup issues the scores of the next tile and P V of this one together, and does its softmax while P V runs
//   ping_pong  named barriers pass the right to issue products round the warpgroups, so that one does its softmax while the others multiply
//   persistent a block takes several query blocks; while it writes one, the producer already loads the next
// Query blocks with many visible keys come first, and heads are taken in groups whose keys and values fit in the L2 cache.
#include "common/sm90_product.h"

namespace {

using whet::Int64;
using whet::sm90::Product;
using whet::sm90::TensorMap;
using whet::sm90::Uint32;
using whet::sm90::Uint64;

constexpr int kWarpgroups = TUNE_WARPGROUPS;
constexpr int kRows = 64;  // of a warpgroup: the height of one wgmma
constexpr int kBlockQ = kRows * kWarpgroups;
constexpr int kBlockKv = TUNE_BLOCK_KV;
constexpr int kStages = TUNE_STAGES;
constexpr bool kOverlap = TUNE_OVERLAP;
constexpr bool kPingPong = TUNE_PING_PONG;
constexpr bool kQueryInRegisters = TUNE_Q_REGISTERS;
constexpr int kQStages = TUNE_Q_STAGES;
// Probabilities may grow to 2^kLazyLog2 before the output is rescaled to a new row maximum.
constexpr int kLazyLog2 = TUNE_LAZY_LOG2;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr int kSeqQ = SHAPE_SEQ_Q;
constexpr int kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr int kGroup = SHAPE_HEADS_Q / SHAPE_HEADS_KV;
constexpr int kHeads = SHAPE_BATCH * kHeadsQ;
constexpr int kQueryBlocks = (kSeqQ + kBlockQ - 1) / kBlockQ;
constexpr int kWork = kQueryBlocks * kHeads;
constexpr int kOffset = kSeqKv - kSeqQ;  // key j is visible to row i when j <= i + kOffset

constexpr int kPanel = 64;       // elements of a swizzled row
constexpr int kPanelRow = 128;   // its bytes
constexpr int kQkPanels = (kDqk + kPanel - 1) / kPanel;
constexpr int kVPanels = (kDv + kPanel - 1) / kPanel;
constexpr int kQkSteps = (kDqk + 15) / 16;
constexpr int kKvSteps = kBlockKv / 16;

constexpr int kQPanelBytes = kRows * kPanelRow;
constexpr int kQBytes = kQkPanels * kQPanelBytes;  // of one warpgroup
constexpr int kKvPanelBytes = kBlockKv * kPanelRow;
constexpr int kKBytes = kQkPanels * kKvPanelBytes;
constexpr int kVBytes = kVPanels * kKvPanelBytes;

constexpr int kQAt = 0;
constexpr int kKAt = kQAt + kQStages * kWarpgroups * kQBytes;
constexpr int kVAt = kKAt + kStages * kKBytes;
constexpr int kBarriersAt = kVAt + kStages * kVBytes;
constexpr int kMails = 4;
constexpr int kMailBytes = 16;
constexpr int kFullQ = 0;  // one per stage and warpgroup
constexpr int kEmptyQ = kFullQ + kQStages * kWarpgroups;
constexpr int kFullK = kEmptyQ + kQStages * kWarpgroups;
constexpr int kEmptyK = kFullK + kStages;
constexpr int kFullV = kEmptyK + kStages;
constexpr int kEmptyV = kFullV + kStages;
constexpr int kFullMail = kEmptyV + kStages;
constexpr int kEmptyMail = kFullMail + kMails;
constexpr int kBarriers = kEmptyMail + kMails;
constexpr int kMailAt = kBarriersAt + 8 * kBarriers;

constexpr int kThreads = (kWarpgroups + 1) * 128;
// Registers move only within what the block has at its start: 168 per thread with 384 threads, 128 with 512.
constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
static_assert(kConsumerRegisters * kWarpgroups + kProducerRegisters <= 65536 / kThreads / 8 * 8 * (kWarpgroups + 1), "a warpgroup would wait for registers forever");

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for bf16");
static_assert(LAUNCH_BLOCK_X == kThreads, "block must be 128 threads per warpgroup, one of them the producer's");
static_assert(kWarpgroups >= 1 && kWarpgroups <= 3, "registers are set for 1 to 3 consumer warpgroups");
static_assert(kBlockKv % 16 == 0 && kBlockKv <= 256, "block_kv must be a multiple of 16 up to 256");
static_assert(kDqk % 8 == 0 && kDv % 8 == 0 && kDv <= 256, "head dimensions must be multiples of 8");
static_assert(kStages >= 2, "loads run one tile ahead: at least two stages");
static_assert(1024 + kMailAt + kMailBytes * kMails <= LAUNCH_SHARED_BYTES, "shared_bytes of the kernel file is too small");

struct Work {
  int query_block;
  int head;
  int batch;
};

// Heads whose K and V together take about half of the L2 cache; whole groups of query heads that share them.
constexpr Int64 kHeadBytes = static_cast<Int64>(kSeqKv) * (kDqk + kDv) * 2;
constexpr Int64 kCachedHeads = (static_cast<Int64>(TUNE_CACHE_MIB) << 20) / kHeadBytes * kGroup;
constexpr int kHeadChunk = kCachedHeads < kGroup ? kGroup : kCachedHeads > kHeads ? kHeads : static_cast<int>(kCachedHeads);

WHET_DEVICE Work work_at(int index) {
  const int chunk = index / (kHeadChunk * kQueryBlocks);
  const int in_chunk = index % (kHeadChunk * kQueryBlocks);
  const int left = kHeads - chunk * kHeadChunk;
  const int size = kHeads % kHeadChunk == 0 || left >= kHeadChunk ? kHeadChunk : left;
  const int flat_head = chunk * kHeadChunk + in_chunk % size;
  return {kQueryBlocks - 1 - in_chunk / size, flat_head % kHeadsQ, flat_head / kHeadsQ};
}

// Key tiles that some row of [first, last] sees.
WHET_DEVICE int visible_tiles(int first, int last) {
  if (first >= kSeqQ) return 0;
  if (last >= kSeqQ) last = kSeqQ - 1;
  int keys = kSeqKv;
  if (SHAPE_CAUSAL && last + kOffset + 1 < keys) keys = last + kOffset + 1;
  return keys <= 0 ? 0 : (keys + kBlockKv - 1) / kBlockKv;
}

// A place in a ring of stages and the parity of the round through it.
template <int kCount>
struct Ring {
  int stage = 0;
  Uint32 parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kCount) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Work for everyone in the block comes through a ring in shared memory; a negative query block ends it.
struct Mailbox {
  Uint32 shared;
  Ring<kMails> ring;

  // By a whole warp.
  __device__ __forceinline__ void put(const Work& work) {
    const Uint32 barriers = shared + kBarriersAt;
    const Uint32 mail = shared + kMailAt + kMailBytes * ring.stage;
    whet::sm90::wait(barriers + 8 * (kEmptyMail + ring.stage), ring.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      whet::sm90::store_shared(mail, static_cast<Uint32>(work.query_block));
      whet::sm90::store_shared(mail + 4, static_cast<Uint32>(work.head));
      whet::sm90::store_shared(mail + 8, static_cast<Uint32>(work.batch));
      whet::sm90::arrive(barriers + 8 * (kFullMail + ring.stage));
    }
    ring.advance();
  }

  // By a whole warp.
  __device__ __forceinline__ Work take() {
    const Uint32 barriers = shared + kBarriersAt;
    const Uint32 mail = shared + kMailAt + kMailBytes * ring.stage;
    whet::sm90::wait(barriers + 8 * (kFullMail + ring.stage), ring.parity);
    const Work work = {whet::sm90::uniform(static_cast<int>(whet::sm90::load_shared(mail))),
                       whet::sm90::uniform(static_cast<int>(whet::sm90::load_shared(mail + 4))),
                       whet::sm90::uniform(static_cast<int>(whet::sm90::load_shared(mail + 8)))};
    if (threadIdx.x % 32 == 0) whet::sm90::arrive(barriers + 8 * (kEmptyMail + ring.stage));
    ring.advance();
    return work;
  }
};

// The schedule of the grid, which every block works out for itself. One warp.
WHET_DEVICE void schedule(Uint32 shared) {
  Mailbox mailbox{shared, {}};
  const int bins = static_cast<int>(gridDim.x);
  const int mine = static_cast<int>(blockIdx.x);
  if constexpr (TUNE_SCHEDULE == 0) {
    mailbox.put(work_at(mine));
  } else if constexpr (TUNE_SCHEDULE == 1) {
    // Odd rounds go backwards, so that falling costs even out.
    for (int round = 0;; ++round) {
      const int index = round * bins + ((round & 1) != 0 ? bins - 1 - mine : mine);
      if (index >= kWork) break;
      mailbox.put(work_at(index));
    }
  } else {
    // What a queue would do: the next work goes to whoever is free first. Costs are known, so every block can follow the queue without
    // one. A lane keeps the hours of every 32nd bin, as (time, bin).
    constexpr int kBinsPerLane = 5;
    constexpr int kBinBits = 8;
    Uint32 busy[kBinsPerLane];
#pragma unroll
    for (int i = 0; i < kBinsPerLane; ++i) {
      const int bin = i * 32 + static_cast<int>(threadIdx.x) % 32;
      busy[i] = bin < bins ? static_cast<Uint32>(bin) : 0xffffffffu;
    }
    int index = 0;
    for (int chunk = 0; index < kWork; ++chunk) {
      const int left = kHeads - chunk * kHeadChunk;
      const int size = left < kHeadChunk ? left : kHeadChunk;
      for (int query_block = kQueryBlocks - 1; query_block >= 0; --query_block) {
        const Uint32 cost = static_cast<Uint32>(2 * visible_tiles(query_block * kBlockQ, query_block * kBlockQ + kBlockQ - 1) + 1) << kBinBits;
        for (int i = 0; i < size; ++i, ++index) {
          Uint32 first = busy[0];
#pragma unroll
          for (int b = 1; b < kBinsPerLane; ++b) first = min(first, busy[b]);
          first = whet::sm90::warp_min(first);
          if (static_cast<int>(first & ((1u << kBinBits) - 1)) == mine) mailbox.put(work_at(index));
#pragma unroll
          for (int b = 0; b < kBinsPerLane; ++b)
            if (busy[b] == first) busy[b] += cost;
        }
      }
    }
  }
  mailbox.put({-1, 0, 0});
}

WHET_DEVICE int block_tiles(const Work& work) {
  const int row0 = work.query_block * kBlockQ;
  return visible_tiles(row0, row0 + kBlockQ - 1);
}

WHET_DEVICE void load_queries(Uint32 shared, const TensorMap& q_map) {
  const Uint32 barriers = shared + kBarriersAt;
  const bool leader = threadIdx.x % 32 == 0;
  Mailbox mailbox{shared, {}};
  Ring<kQStages> ring;
  for (;;) {
    const Work work = mailbox.take();
    if (work.query_block < 0) break;
    const int row0 = work.query_block * kBlockQ;
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) {
      const int place = ring.stage * kWarpgroups + w;
      const Uint32 full = barriers + 8 * (kFullQ + place);
      whet::sm90::wait(barriers + 8 * (kEmptyQ + place), ring.parity ^ 1);
      if (leader) {
        whet::sm90::arrive_expect(full, kQBytes);
#pragma unroll
        for (int p = 0; p < kQkPanels; ++p)
          whet::sm90::load_tile(shared + kQAt + place * kQBytes + p * kQPanelBytes, &q_map, full, p * kPanel, row0 + w * kRows, work.head, work.batch);
      }
    }
    ring.advance();
  }
}

// Loads a tile of keys or values.
template <int kPanels>
WHET_DEVICE void load_keys(Uint32 to, const TensorMap* map, Uint32 full, int tile, int head, int batch) {
  whet::sm90::arrive_expect(full, kPanels * kKvPanelBytes);
#pragma unroll
  for (int p = 0; p < kPanels; ++p) whet::sm90::load_tile(to + p * kKvPanelBytes, map, full, p * kPanel, tile * kBlockKv, head, batch);
}

WHET_DEVICE void load_keys_and_values(Uint32 shared, const TensorMap& k_map, const TensorMap& v_map) {
  const Uint32 barriers = shared + kBarriersAt;
  const bool leader = threadIdx.x % 32 == 0;
  Mailbox mailbox{shared, {}};
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  for (;;) {
    const Work work = mailbox.take();
    if (work.query_block < 0) break;
    const int head_kv = work.head / kGroup;
    // In the order of use: the scores of a tile are computed before the output of the one before it.
    for (int tile = block_tiles(work) - 1, previous = -1; tile >= 0 || previous >= 0; previous = tile--) {
      if (tile >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyK + k_ring.stage), k_ring.parity ^ 1);
        if (leader) load_keys<kQkPanels>(shared + kKAt + k_ring.stage * kKBytes, &k_map, barriers + 8 * (kFullK + k_ring.stage), tile, head_kv, work.batch);
        k_ring.advance();
      }
      if (previous >= 0) {
        whet::sm90::wait(barriers + 8 * (kEmptyV + v_ring.stage), v_ring.parity ^ 1);
        if (leader) load_keys<kVPanels>(shared + kVAt + v_ring.stage * kVBytes, &v_map, barriers + 8 * (kFullV + v_ring.stage), previous, head_kv, work.batch);
        v_ring.advance();
      }
    }
  }
}

// What a thread knows of its two rows: lane / 4 and lane / 4 + 8 of the 16 rows of its warp.
struct Softmax {
  float top[2];     // row maximum of the raw scores that probabilities refer to; -inf while no key was visible
  float total[2];   // this thread's share of the sum of the probabilities
  float shrink[2];  // what the output must be multiplied by before the next P V
  bool shrinks;
};

WHET_DEVICE float quad_max(float x) {
  x = fmaxf(x, whet::shuffle_xor<1>(x));
  return fmaxf(x, whet::shuffle_xor<2>(x));
}
WHET_DEVICE float quad_sum(float x) {
  x += whet::shuffle_xor<1>(x);
  return x + whet::shuffle_xor<2>(x);
}

// Turns raw scores into probabilities in place. `scale` is positive and includes log2(e).
WHET_DEVICE void softmax(float (&s)[kBlockKv / 2], Softmax& state, float scale) {
  float tile_top[2][2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float top = s[2 * r + c];
#pragma unroll
      for (int i = 4; i < kBlockKv / 2; i += 4) top = fmaxf(top, s[i + 2 * r + c]);
      tile_top[r][c] = top;
    }
  float top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = quad_max(fmaxf(tile_top[r][0], tile_top[r][1]));

  const bool grows = (top[0] - state.top[0]) * scale > kLazyLog2 || (top[1] - state.top[1]) * scale > kLazyLog2;
  state.shrinks = __any_sync(0xffffffffu, grows);
  if (state.shrinks) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float next = fmaxf(state.top[r], top[r]);
      // While nothing is visible, -inf - -inf must not become NaN.
      state.shrink[r] = next == state.top[r] ? 1.0f : whet::exp2_fast((state.top[r] - next) * scale);
      state.top[r] = next;
      state.total[r] *= state.shrink[r];
    }
  }

  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float reference = state.top[r] * scale;
    if (state.top[r] == whet::negative_infinity()) reference = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlockKv / 2; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& x = s[i + 2 * r + c];
        x = whet::exp2_fast(__fmaf_rn(x, scale, -reference));
        part[r][c] += x;
      }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) state.total[r] += part[r][0] + part[r][1];
}

// Probabilities by the row maxima of earlier tiles, without a look at this tile's: right unless they grow too large (or nothing was visible
// so far), which their sum shows. Returns whether they are right for every row of the warp; the raw scores stay as they are.
WHET_DEVICE bool speculate(Uint32 (&p)[kBlockKv / 4], const float (&s)[kBlockKv / 2], Softmax& state, float scale) {
  constexpr float kLimit = 1048576.0f;
  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
  const float reference[2] = {state.top[0] * scale, state.top[1] * scale};
#pragma unroll
  for (int i = 0; i < kBlockKv / 4; ++i) {
    const int r = i % 2;
    const float low = whet::exp2_fast(__fmaf_rn(s[2 * i], scale, -reference[r]));
    const float high = whet::exp2_fast(__fmaf_rn(s[2 * i + 1], scale, -reference[r]));
    part[r][0] += low;
    part[r][1] += high;
    p[i] = whet::sm90::pack_bf16(low, high);
  }
  const float sum[2] = {part[0][0] + part[0][1], part[1][0] + part[1][1]};
  // -inf as reference makes the sum infinite or NaN.
  const bool right = sum[0] <= kLimit && sum[1] <= kLimit;
  if (!__all_sync(0xffffffffu, right)) return false;
  state.total[0] += sum[0];
  state.total[1] += sum[1];
  state.shrinks = false;
  return true;
}

// ptxas moves a wait for products up past arithmetic that does not need it, here past the exponentials that are to run meanwhile. A store
// that depends on all of them stops it; sums of exponentials are never negative, so it is never done.
WHET_DEVICE void settle(const Softmax& state, Uint32 scratch) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.lt.f32 never, %0, 0f00000000;\n"
      "@never st.volatile.shared.f32 [%1], %0;\n"
      "}" ::"f"(state.total[0] + state.total[1]),
      "r"(scratch)
      : "memory");
}

// -inf where the key is not visible: past the end, or later than the row allows.
WHET_DEVICE void mask(float (&s)[kBlockKv / 2], int key0, int row, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int last = kSeqKv - 1;
    if (SHAPE_CAUSAL) last = min(last, row + 8 * r + kOffset);
    const int limit = last - key0 - 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kBlockKv / 2; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (2 * i + c > limit) s[i + 2 * r + c] = whet::negative_infinity();
  }
}

struct Query {
  Uint32 shared;  // this warpgroup's rows in shared memory
  Uint32 registers[kQueryInRegisters ? kQkSteps * 4 : 1];
};

WHET_DEVICE void read_query(Query& query, int warp, int lane) {
  const int row = warp * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    const int chunk = (step % 4) * 2 + lane / 16;
    Uint32 four[4];
    whet::sm90::load_matrices(four, query.shared + (step / 4) * kQPanelBytes + row * kPanelRow + ((chunk ^ (row % 8)) * 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) query.registers[step * 4 + i] = four[i];
  }
}

// Issues S = Q K^T for the K tile at `k`.
WHET_DEVICE void issue_scores(float (&s)[kBlockKv / 2], Query& query, Uint32 k) {
  const Uint64 k_base = whet::sm90::panel_descriptor(k, 16);
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    const Uint64 k_step = k_base + ((step / 4) * kKvPanelBytes + (step % 4) * 32) / 16;
    if constexpr (kQueryInRegisters) {
      Product<kBlockKv>::register_shared(s, &query.registers[step * 4], k_step, step != 0);
    } else {
      const Uint64 q_base = whet::sm90::panel_descriptor(query.shared, 16);
      Product<kBlockKv>::shared_shared(s, q_base + ((step / 4) * kQPanelBytes + (step % 4) * 32) / 16, k_step, step != 0);
    }
  }
  whet::sm90::product_commit();
}

// Issues O += P V for the V tile at `v`, or O = P V.
WHET_DEVICE void issue_output(float (&o)[kDv / 2], const Uint32 (&p)[kBlockKv / 4], Uint32 v, int accumulate) {
  const Uint64 v_base = whet::sm90::panel_descriptor(v, kKvPanelBytes);
#pragma unroll
  for (int step = 0; step < kKvSteps; ++step) Product<kDv>::register_columns(o, &p[step * 4], v_base + step * (16 * kPanelRow / 16), step != 0 || accumulate);
  whet::sm90::product_commit();
}

WHET_DEVICE void pack(Uint32 (&p)[kBlockKv / 4], const float (&s)[kBlockKv / 2]) {
#pragma unroll
  for (int i = 0; i < kBlockKv / 4; ++i) p[i] = whet::sm90::pack_bf16(s[2 * i], s[2 * i + 1]);
}

WHET_DEVICE void rescale(float (&o)[kDv / 2], const Softmax& state) {
  if (!state.shrinks) return;
#pragma unroll
  for (int i = 0; i < kDv / 2; ++i) o[i] *= state.shrink[(i / 2) % 2];
}

// Writes the 8 columns that a lane holds the quarter of, for every fourth group of 8 after an exchange within the quad: then each lane has
// 16 contiguous bytes.
WHET_DEVICE void write_row(unsigned short* row, const float (&o)[kDv / 2], int r, float inverse, bool inside, int lane) {
  const int quarter = lane % 4;
  constexpr int kColumnGroups = kDv / 8;
#pragma unroll
  for (int g = 0; g + 4 <= kColumnGroups; g += 4) {
    Uint32 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = whet::sm90::pack_bf16(o[(g + i) * 4 + 2 * r] * inverse, o[(g + i) * 4 + 2 * r + 1] * inverse);
    // Lane t of the quad ends with group t: first lanes 1 apart swap, then lanes 2 apart.
    const bool odd = (quarter & 1) != 0;
    const bool upper = (quarter & 2) != 0;
    Uint32 low[2];
    Uint32 high[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Uint32 got = __shfl_xor_sync(0xffffffffu, odd ? x[2 * i] : x[2 * i + 1], 1);
      low[i] = odd ? got : x[2 * i];
      high[i] = odd ? x[2 * i + 1] : got;
    }
    const Uint32 got_low = __shfl_xor_sync(0xffffffffu, upper ? low[0] : low[1], 2);
    const Uint32 got_high = __shfl_xor_sync(0xffffffffu, upper ? high[0] : high[1], 2);
    whet::sm90::store_global(row + (g + quarter) * 8, upper ? got_low : low[0], upper ? got_high : high[0], upper ? low[1] : got_low,
                             upper ? high[1] : got_high, inside);
  }
#pragma unroll
  for (int g = kColumnGroups / 4 * 4; g < kColumnGroups; ++g)
    if (inside) *reinterpret_cast<Uint32*>(row + g * 8 + quarter * 2) = whet::sm90::pack_bf16(o[g * 4 + 2 * r] * inverse, o[g * 4 + 2 * r + 1] * inverse);
}

// A piece of work as one warpgroup sees it.
struct Item {
  int head;
  int batch;
  int row;          // this thread's first
  int tiles;        // that some row of the warpgroup sees
  int later;        // tiles that only other warpgroups see; they come first
  int whole_tiles;  // tiles from here on need a mask
};

WHET_DEVICE Item item_at(const Work& work, int warpgroup, int warp, int lane) {
  const int row0 = work.query_block * kBlockQ + warpgroup * kRows;
  Item item = {};
  item.head = work.head;
  item.batch = work.batch;
  item.row = row0 + warp * 16 + lane / 4;
  item.tiles = visible_tiles(row0, row0 + kRows - 1);
  item.later = block_tiles(work) - item.tiles;
  item.whole_tiles = kSeqKv / kBlockKv;
  if (SHAPE_CAUSAL) item.whole_tiles = max(0, min(item.whole_tiles, (row0 + kOffset + 1) / kBlockKv));
  return item;
}

WHET_DEVICE void write_item(const Item& item, const float (&o)[kDv / 2], const float (&top)[2], const float (&total)[2], float scale, unsigned short* out,
                            float* lse, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = item.row + 8 * r;
    const bool inside = row < kSeqQ;
    const float sum = quad_sum(total[r]);
    const bool blank = top[r] == whet::negative_infinity();
    write_row(out + item.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) + item.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                  row * static_cast<Int64>(SHAPE_O_STRIDE_S),
              o, r, blank ? 0.0f : 1.0f / sum, inside, lane);
    if (SHAPE_LSE && lane % 4 == 0 && inside) {
      const float value = blank ? top[r] : (top[r] * scale + whet::log2_fast(sum)) * 0.69314718055994530942f;
      lse[(static_cast<Int64>(item.batch) * kHeadsQ + item.head) * kSeqQ + row] = value;
    }
  }
}

WHET_DEVICE void consume(Uint32 shared, int warpgroup, unsigned short* out, float* lse, float raw_scale) {
  const Uint32 barriers = shared + kBarriersAt;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  // A negative scale turns the order of the scores round: they are negated instead. Zero becomes too small to matter.
  const float scale = fmaxf(fabsf(raw_scale), 1e-30f) * 1.44269504088896340736f;

  Mailbox mailbox{shared, {}};
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  Ring<kQStages> q_ring;
  const auto wait_k = [&] { whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity); };
  const auto wait_v = [&] { whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity); };
  const auto release = [&](int barrier) {
    if (lane == 0) whet::sm90::arrive(barriers + 8 * barrier);
  };
  const auto release_k = [&] {
    release(kEmptyK + k_ring.stage);
    k_ring.advance();
  };
  const auto release_v = [&] {
    release(kEmptyV + v_ring.stage);
    v_ring.advance();
  };
  const auto my_turn = [&] {
    if constexpr (kPingPong) whet::sm90::named_wait(1 + warpgroup, 256);
  };
  const auto next_turn = [&] {
    if constexpr (kPingPong) whet::sm90::named_arrive(1 + (warpgroup + 1) % kWarpgroups, 256);
  };
  if (warpgroup == kWarpgroups - 1) next_turn();

  Query query;
  const auto take_query = [&] {
    const int place = q_ring.stage * kWarpgroups + warpgroup;
    query.shared = shared + kQAt + place * kQBytes;
    whet::sm90::wait(barriers + 8 * (kFullQ + place), q_ring.parity);
    if constexpr (kQueryInRegisters) read_query(query, warp, lane);
  };
  const auto give_query = [&] {
    if (lane == 0) whet::sm90::arrive(barriers + 8 * (kEmptyQ + q_ring.stage * kWarpgroups + warpgroup));
    q_ring.advance();
  };
  // K tiles of this work that only other warpgroups see; every turn is given away.
  const auto pass_keys = [&](int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_k();
      release_k();
      my_turn();
      next_turn();
    }
  };
  const auto pass_values = [&](int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_v();
      release_v();
    }
  };

  Item item = {};
  float o[kDv / 2];
  Uint32 p[kBlockKv / 4];
  // The products that run read p, so its successor must be other registers until they are done. A plain copy would be optimised away, and
  // the products made to wait instead; the compiler does not know that this is zero.
  const Uint32 zero = static_cast<Uint32>(whet::sm90::uniform(static_cast<int>(threadIdx.x))) >> 16;
  Softmax state;
  const auto clear_state = [&] {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.top[r] = whet::negative_infinity();
      state.total[r] = 0.0f;
      state.shrink[r] = 1.0f;
    }
  };
  const auto clear_output = [&] {
#pragma unroll
    for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;
  };
  const auto finish_scores = [&](float(&s)[kBlockKv / 2], int tile) {
    whet::sm90::pin(s);
    release_k();
    if (!kQueryInRegisters && tile == 0) give_query();
    if (raw_scale < 0.0f) {
#pragma unroll
      for (int i = 0; i < kBlockKv / 2; ++i) s[i] = -s[i];
    }
    if (tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, lane);
  };

  Work work = mailbox.take();
  while (work.query_block >= 0) {
    // The first tile of a work, with nothing to overlap it.
    item = item_at(work, warpgroup, warp, lane);
    clear_state();
    clear_output();
    take_query();
    if constexpr (kQueryInRegisters) give_query();
    if (item.tiles == 0) {
      if constexpr (!kQueryInRegisters) give_query();
#pragma unroll 1
      for (int i = 0; i < item.later; ++i) {
        pass_keys(1);
        pass_values(1);
      }
      write_item(item, o, state.top, state.total, scale, out, lse, lane);
      work = mailbox.take();
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      pass_keys(1);
      pass_values(1);
    }
    {
      float s[kBlockKv / 2];
      wait_k();
      my_turn();
      whet::sm90::product_fence();
      issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
      next_turn();
      whet::sm90::product_wait<0>();
      finish_scores(s, item.tiles - 1);
      softmax(s, state, scale);
      pack(p, s);
    }

    // From here a tile's output and the next tile's scores go together, also from one work to the next.
    int tile = item.tiles - 1;  // the one whose probabilities are in p
    Item done = item;
    float done_top[2] = {0.0f, 0.0f};
    float done_total[2] = {0.0f, 0.0f};
    bool unwritten = false;  // o is still the output of `done`
#pragma unroll 1
    for (;;) {
      bool starts = false;
      if (tile == 0) {
        // The last work of a single tile is still in o.
        if (unwritten) {
          write_item(done, o, done_top, done_total, scale, out, lse, lane);
          clear_output();
          unwritten = false;
        }
        done = item;
        work = mailbox.take();
        if (!kOverlap || work.query_block < 0) break;
        item = item_at(work, warpgroup, warp, lane);
        // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
        if (item.tiles == 0 || item.later >= kStages) {
          item = done;
          break;
        }
        starts = true;
        take_query();
        if constexpr (kQueryInRegisters) give_query();
        pass_keys(item.later);
        tile = item.tiles;
      }
      --tile;
      if constexpr (kOverlap) {
        float s[kBlockKv / 2];  // a new one: nothing of the last tile's scores may tie its registers
        wait_k();
        my_turn();
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
        const bool writes = unwritten;
        if (writes) {
          // The scores' products run meanwhile, and then the other warpgroups'.
          next_turn();
          write_item(done, o, done_top, done_total, scale, out, lse, lane);
        }
        wait_v();
        whet::sm90::product_fence();
        issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes, !writes);
        if (!writes) next_turn();
        unwritten = starts;
        whet::sm90::product_wait<1>();
        finish_scores(s, tile);
        if (starts) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            done_top[r] = state.top[r];
            done_total[r] = state.total[r];
          }
          clear_state();
        }
        Uint32 next_p[kBlockKv / 4];
        if constexpr (TUNE_SPECULATE) {
          if (starts || !speculate(next_p, s, state, scale)) {
            softmax(s, state, scale);
            pack(next_p, s);
          }
          whet::sm90::pin(next_p);
        } else {
          softmax(s, state, scale);
          whet::sm90::pin(s);
        }
        settle(state, shared);
        whet::sm90::product_wait<0>();
        whet::sm90::pin(o);
        release_v();
        if (starts) {
          pass_values(item.later);
        } else {
          rescale(o, state);
        }
        if constexpr (TUNE_SPECULATE) {
#pragma unroll
          for (int i = 0; i < kBlockKv / 4; ++i) p[i] = next_p[i] ^ zero;
        } else {
          pack(p, s);
        }
      } else {
        wait_v();
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes, 1);
        whet::sm90::product_wait<0>();
        whet::sm90::pin(o);
        release_v();
        float s[kBlockKv / 2];
        wait_k();
        whet::sm90::product_fence();
        issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
        whet::sm90::product_wait<0>();
        finish_scores(s, tile);
        softmax(s, state, scale);
        rescale(o, state);
        pack(p, s);
      }
    }

    wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes, 1);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    release_v();
    write_item(item, o, state.top, state.total, scale, out, lse, lane);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    WHET_ENTRY(const unsigned short* q, const unsigned short* k, const unsigned short* v, unsigned short* o, float* lse, float scale,
               const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // Swizzled panels must start at multiples of 1024 bytes.
  const Uint32 shared = (whet::sm90::shared_address(dynamic_shared) + 1023u) & ~1023u;
  const Uint32 barriers = shared + kBarriersAt;
  const int warpgroup = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 128);

  if (threadIdx.x == 0) {
    whet::sm90::prefetch_map(&q_map);
    whet::sm90::prefetch_map(&k_map);
    whet::sm90::prefetch_map(&v_map);
    for (int i = 0; i < kQStages * kWarpgroups; ++i) {
      whet::sm90::barrier_init(barriers + 8 * (kFullQ + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyQ + i), 4);
    }
    for (int i = 0; i < kStages; ++i) {
      whet::sm90::barrier_init(barriers + 8 * (kFullK + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyK + i), 4 * kWarpgroups);
      whet::sm90::barrier_init(barriers + 8 * (kFullV + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyV + i), 4 * kWarpgroups);
    }
    for (int i = 0; i < kMails; ++i) {
      whet::sm90::barrier_init(barriers + 8 * (kFullMail + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyMail + i), 4 * kWarpgroups + 2);
    }
    whet::sm90::barrier_init_fence();
  }
  __syncthreads();

  if (warpgroup == kWarpgroups) {
    whet::sm90::shrink_registers<kProducerRegisters>();
    const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
    if (warp == 0) {
      load_keys_and_values(shared, k_map, v_map);
    } else if (warp == 1) {
      load_queries(shared, q_map);
    } else if (warp == 2) {
      schedule(shared);
    }
  } else {
    whet::sm90::grow_registers<kConsumerRegisters>();
    consume(shared, warpgroup, o, lse, scale);
  }
}
