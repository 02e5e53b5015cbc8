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
// Probabilities may grow to 2^kLazyLog2 before the output is rescaled to a new row maximum; negative: rescaled at every tile.
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
constexpr int kKAt = kQAt + kWarpgroups * kQBytes;
constexpr int kVAt = kKAt + kStages * kKBytes;
constexpr int kBarriersAt = kVAt + kStages * kVBytes;
constexpr int kFullQ = 0;
constexpr int kEmptyQ = kFullQ + kWarpgroups;
constexpr int kFullK = kEmptyQ + kWarpgroups;
constexpr int kEmptyK = kFullK + kStages;
constexpr int kFullV = kEmptyK + kStages;
constexpr int kEmptyV = kFullV + kStages;
constexpr int kBarriers = kEmptyV + kStages;

constexpr int kThreads = (kWarpgroups + 1) * 128;
constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 24;

static_assert(SHAPE_DTYPE == WHET_BF16, "this kernel is for bf16");
static_assert(LAUNCH_BLOCK_X == kThreads, "block must be 128 threads per warpgroup, one of them the producer's");
static_assert(kWarpgroups >= 1 && kWarpgroups <= 3, "registers are set for 1 to 3 consumer warpgroups");
static_assert(kBlockKv % 16 == 0 && kBlockKv <= 256, "block_kv must be a multiple of 16 up to 256");
static_assert(kDqk % 8 == 0 && kDv % 8 == 0 && kDv <= 256, "head dimensions must be multiples of 8");
static_assert(kStages >= 2, "loads run one tile ahead: at least two stages");
static_assert(1024 + kBarriersAt + 8 * kBarriers <= LAUNCH_SHARED_BYTES, "shared_bytes of the kernel file is too small");

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
  const int size = left < kHeadChunk ? left : kHeadChunk;
  const int flat_head = chunk * kHeadChunk + in_chunk % size;
  return {kQueryBlocks - 1 - in_chunk / size, flat_head % kHeadsQ, flat_head / kHeadsQ};
}

// The work of a block in its round, or kWork when there is none. Odd rounds go backwards, so that falling costs even out.
WHET_DEVICE int work_index(int round) {
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  const int index = round * blocks + ((round & 1) != 0 ? blocks - 1 - block : block);
  return index < kWork ? index : kWork;
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
struct Ring {
  int stage = 0;
  Uint32 parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

WHET_DEVICE void produce(Uint32 shared, const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map) {
  const Uint32 barriers = shared + kBarriersAt;
  Ring k_ring;
  Ring v_ring;
  Uint32 q_parity = 0;
  for (int round = 0;; ++round) {
    const int index = work_index(round);
    if (index == kWork) break;
    const Work work = work_at(index);
    const int head_kv = work.head / kGroup;
    const int row0 = work.query_block * kBlockQ;
    const int tiles = visible_tiles(row0, row0 + kBlockQ - 1);

    const auto load_k = [&](int tile) {
      const Uint32 full = barriers + 8 * (kFullK + k_ring.stage);
      whet::sm90::wait(barriers + 8 * (kEmptyK + k_ring.stage), k_ring.parity ^ 1);
      whet::sm90::arrive_expect(full, kKBytes);
#pragma unroll
      for (int p = 0; p < kQkPanels; ++p)
        whet::sm90::load_tile(shared + kKAt + k_ring.stage * kKBytes + p * kKvPanelBytes, &k_map, full, p * kPanel, tile * kBlockKv, head_kv, work.batch);
      k_ring.advance();
    };
    const auto load_v = [&](int tile) {
      const Uint32 full = barriers + 8 * (kFullV + v_ring.stage);
      whet::sm90::wait(barriers + 8 * (kEmptyV + v_ring.stage), v_ring.parity ^ 1);
      whet::sm90::arrive_expect(full, kVBytes);
#pragma unroll
      for (int p = 0; p < kVPanels; ++p)
        whet::sm90::load_tile(shared + kVAt + v_ring.stage * kVBytes + p * kKvPanelBytes, &v_map, full, p * kPanel, tile * kBlockKv, head_kv, work.batch);
      v_ring.advance();
    };

    // The previous work may still read its Q, so the first K goes ahead of the new Q.
    if (tiles > 0) load_k(tiles - 1);
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) {
      const Uint32 full = barriers + 8 * (kFullQ + w);
      whet::sm90::wait(barriers + 8 * (kEmptyQ + w), q_parity ^ 1);
      whet::sm90::arrive_expect(full, kQBytes);
#pragma unroll
      for (int p = 0; p < kQkPanels; ++p)
        whet::sm90::load_tile(shared + kQAt + w * kQBytes + p * kQPanelBytes, &q_map, full, p * kPanel, row0 + w * kRows, work.head, work.batch);
    }
    q_parity ^= 1;
    for (int tile = tiles - 2; tile >= 0; --tile) {
      load_k(tile);
      load_v(tile + 1);
    }
    if (tiles > 0) load_v(0);
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
template <bool kFirst>
WHET_DEVICE void softmax(float (&s)[kBlockKv / 2], Softmax& state, float scale, bool may_be_blank) {
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

  if constexpr (kFirst) {
#pragma unroll
    for (int r = 0; r < 2; ++r) state.top[r] = top[r];
  } else {
    state.shrinks = true;
    if constexpr (kLazyLog2 >= 0) {
      const bool grows = (top[0] - state.top[0]) * scale > kLazyLog2 || (top[1] - state.top[1]) * scale > kLazyLog2;
      state.shrinks = __any_sync(0xffffffffu, grows);
    }
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
  }

  float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float reference = state.top[r] * scale;
    if (may_be_blank && state.top[r] == whet::negative_infinity()) reference = 0.0f;
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
  for (int r = 0; r < 2; ++r) {
    const float sum = part[r][0] + part[r][1];
    state.total[r] = kFirst ? sum : state.total[r] + sum;
  }
}

// ptxas moves a wait for products up past arithmetic that does not need it, here past the exponentials that are to run meanwhile. A store
// that depends on all of them stops it; sums of exponentials are never negative, so it is never done.
WHET_DEVICE void settle(float (&s)[kBlockKv / 2], const Softmax& state, Uint32 scratch) {
  whet::sm90::pin(s);
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

// Issues O += P V for the V tile at `v`.
WHET_DEVICE void issue_output(float (&o)[kDv / 2], const Uint32 (&p)[kBlockKv / 4], Uint32 v) {
  const Uint64 v_base = whet::sm90::panel_descriptor(v, kKvPanelBytes);
#pragma unroll
  for (int step = 0; step < kKvSteps; ++step) Product<kDv>::register_columns(o, &p[step * 4], v_base + step * (16 * kPanelRow / 16), 1);
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
    uint4 all;
    all.x = upper ? got_low : low[0];
    all.y = upper ? got_high : high[0];
    all.z = upper ? low[1] : got_low;
    all.w = upper ? high[1] : got_high;
    if (inside) *reinterpret_cast<uint4*>(row + (g + quarter) * 8) = all;
  }
#pragma unroll
  for (int g = kColumnGroups / 4 * 4; g < kColumnGroups; ++g)
    if (inside) *reinterpret_cast<Uint32*>(row + g * 8 + quarter * 2) = whet::sm90::pack_bf16(o[g * 4 + 2 * r] * inverse, o[g * 4 + 2 * r + 1] * inverse);
}

WHET_DEVICE void consume(Uint32 shared, int warpgroup, unsigned short* o_out, float* lse, float raw_scale) {
  const Uint32 barriers = shared + kBarriersAt;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  // A negative scale turns the order of the scores round: they are negated instead. Zero becomes too small to matter.
  const float scale = fmaxf(fabsf(raw_scale), 1e-30f) * 1.44269504088896340736f;

  Ring k_ring;
  Ring v_ring;
  Uint32 q_parity = 0;
  const auto release = [&](int barrier) {
    if (lane == 0) whet::sm90::arrive(barriers + 8 * barrier);
  };
  const auto my_turn = [&] {
    if constexpr (kPingPong) whet::sm90::named_wait(1 + warpgroup, 256);
  };
  const auto next_turn = [&] {
    if constexpr (kPingPong) whet::sm90::named_arrive(1 + (warpgroup + 1) % kWarpgroups, 256);
  };
  if (warpgroup == kWarpgroups - 1) next_turn();

  for (int round = 0;; ++round) {
    const int index = work_index(round);
    if (index == kWork) break;
    const Work work = work_at(index);
    const int block_row0 = work.query_block * kBlockQ;
    const int row0 = block_row0 + warpgroup * kRows;
    const int block_tiles = visible_tiles(block_row0, block_row0 + kBlockQ - 1);
    const int tiles = visible_tiles(row0, row0 + kRows - 1);
    int whole_tiles = kSeqKv / kBlockKv;  // tiles from here on need a mask
    if (SHAPE_CAUSAL) whole_tiles = max(0, min(whole_tiles, (row0 + kOffset + 1) / kBlockKv));
    const int row = row0 + warp * 16 + lane / 4;

    Softmax state;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.top[r] = whet::negative_infinity();
      state.total[r] = 0.0f;
      state.shrink[r] = 1.0f;
    }
    float o[kDv / 2];
#pragma unroll
    for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;

    Query query;
    query.shared = shared + kQAt + warpgroup * kQBytes;
    whet::sm90::wait(barriers + 8 * (kFullQ + warpgroup), q_parity);
    q_parity ^= 1;
    if constexpr (kQueryInRegisters) {
      read_query(query, warp, lane);
      release(kEmptyQ + warpgroup);
    }

    // Tiles that only later warpgroups see: pass them on, and give every turn away.
#pragma unroll 1
    for (int tile = block_tiles - 1; tile >= tiles; --tile) {
      whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity);
      release(kEmptyK + k_ring.stage);
      k_ring.advance();
      whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity);
      release(kEmptyV + v_ring.stage);
      v_ring.advance();
      if (kOverlap && tile > 0) {
        my_turn();
        next_turn();
      }
    }

    float s[kBlockKv / 2];
    Uint32 p[kBlockKv / 4];
    const auto finish_scores = [&](int tile) {
      whet::sm90::pin(s);
      release(kEmptyK + k_ring.stage);
      k_ring.advance();
      if (raw_scale < 0.0f) {
#pragma unroll
        for (int i = 0; i < kBlockKv / 2; ++i) s[i] = -s[i];
      }
      if (tile >= whole_tiles) mask(s, tile * kBlockKv, row, lane);
    };
    const auto finish_output = [&] {
      whet::sm90::pin(o);
      release(kEmptyV + v_ring.stage);
      v_ring.advance();
    };

    if (tiles > 0) {
      whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity);
      whet::sm90::product_fence();
      issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
      whet::sm90::product_wait<0>();
      finish_scores(tiles - 1);
      softmax<true>(s, state, scale, true);
      pack(p, s);
    }
#pragma unroll 1
    for (int tile = tiles - 2; tile >= 0; --tile) {
      if constexpr (kOverlap) {
        whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity);
        my_turn();
        whet::sm90::pin(s);
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
        whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity);
        whet::sm90::product_fence();
        issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes);
        next_turn();
        whet::sm90::product_wait<1>();
        finish_scores(tile);
        softmax<false>(s, state, scale, tile >= whole_tiles);
        if constexpr (TUNE_OVERLAP == 1) settle(s, state, shared);
        whet::sm90::product_wait<0>();
        finish_output();
        rescale(o, state);
        pack(p, s);
      } else {
        whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity);
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes);
        whet::sm90::product_wait<0>();
        finish_output();
        whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity);
        whet::sm90::pin(s);
        whet::sm90::product_fence();
        issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
        whet::sm90::product_wait<0>();
        finish_scores(tile);
        softmax<false>(s, state, scale, tile >= whole_tiles);
        rescale(o, state);
        pack(p, s);
      }
    }
    if constexpr (!kQueryInRegisters) release(kEmptyQ + warpgroup);
    if (tiles > 0) {
      whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity);
      whet::sm90::pin(o);
      whet::sm90::pin(p);
      whet::sm90::product_fence();
      issue_output(o, p, shared + kVAt + v_ring.stage * kVBytes);
      whet::sm90::product_wait<0>();
      finish_output();
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int this_row = row + 8 * r;
      const bool inside = this_row < kSeqQ;
      const float sum = quad_sum(state.total[r]);
      const bool blank = state.top[r] == whet::negative_infinity();
      write_row(o_out + work.batch * static_cast<Int64>(SHAPE_O_STRIDE_B) + work.head * static_cast<Int64>(SHAPE_O_STRIDE_H) +
                    this_row * static_cast<Int64>(SHAPE_O_STRIDE_S),
                o, r, blank ? 0.0f : 1.0f / sum, inside, lane);
      if (SHAPE_LSE && lane % 4 == 0 && inside) {
        const float value = blank ? state.top[r] : (state.top[r] * scale + whet::log2_fast(sum)) * 0.69314718055994530942f;
        lse[(static_cast<Int64>(work.batch) * kHeadsQ + work.head) * kSeqQ + this_row] = value;
      }
    }
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
    for (int w = 0; w < kWarpgroups; ++w) {
      whet::sm90::barrier_init(barriers + 8 * (kFullQ + w), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyQ + w), 4);
    }
    for (int i = 0; i < kStages; ++i) {
      whet::sm90::barrier_init(barriers + 8 * (kFullK + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyK + i), 4 * kWarpgroups);
      whet::sm90::barrier_init(barriers + 8 * (kFullV + i), 1);
      whet::sm90::barrier_init(barriers + 8 * (kEmptyV + i), 4 * kWarpgroups);
    }
    whet::sm90::barrier_init_fence();
  }
  __syncthreads();

  if (warpgroup == kWarpgroups) {
    whet::sm90::shrink_registers<kProducerRegisters>();
    if (threadIdx.x == kWarpgroups * 128) produce(shared, q_map, k_map, v_map);
  } else {
    whet::sm90::grow_registers<kConsumerRegisters>();
    consume(shared, warpgroup, o, lse, scale);
  }
}
