// A consumer warpgroup's 64 query rows on their way through the tiles of keys: scores, softmax, output.
#pragma once

// The first one fixes the constants of the others.
// clang-format off
#include "attention_forward/sm90/output.h"
#include "attention_forward/sm90/products.h"
#include "common/sm90_attention/consumer.h"
// clang-format on

namespace attention {

// Steps have three kinds: the first tile of a work goes with the last P V of the work before, the second tile's P V overwrites that work's
// output, and all others only add. Each is a copy of the code of its own.
enum StepKind { kFirstStep, kSecondStep, kLaterStep };

struct Rows {
  Consumer<kKBytes, kVBytes, kPingPong> side;
  unsigned short* out;
  float* lse;
  const TensorMap* o_map;
  bool negated;  // a negative scale turns the order of the scores round: they are negated instead
  float scale;   // positive, with log2(e); zero becomes too small to matter
  int warp;
  // The products that run read p, so its successor must be other registers until they are done. A plain copy would be optimised away, and
  // the products made to wait instead; the compiler does not know that this is zero.
  Uint32 zero;

  Uint32 query;  // this warpgroup's rows in shared memory
  Item item;
  float o[kDv / 2];
  Uint32 p[kBlockKv / 4];       // what the products that run read
  Uint32 next_p[kBlockKv / 4];  // with kSpeculate: of the last tile, whose P V comes next
  Softmax state;
  bool guesses = true;  // a guess for the last work's first tile was right, or would have been
  bool half = false;    // no row sees the upper half of the work's first tile
  Work next;            // taken during a work's last step

  Result done;  // of the work before, while its output is still in o
  bool unwritten = false;

  __device__ __forceinline__ Rows(Uint32 shared, int warpgroup, unsigned short* to, float* to_lse,
                                  float raw_scale, const TensorMap* to_map)
      : side(shared, warpgroup, static_cast<int>(threadIdx.x) % 32),
        out(to),
        lse(to_lse),
        o_map(to_map),
        negated(raw_scale < 0.0f),
        scale(fmaxf(fabsf(raw_scale), 1e-30f) * 1.44269504088896340736f),
        warp(whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4)),
        zero(static_cast<Uint32>(whet::sm90::uniform(static_cast<int>(threadIdx.x))) >> 16) {}

  __device__ __forceinline__ void clear_state() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.top[r] = whet::negative_infinity();
      state.total[r] = 0.0f;
      state.shrink[r] = 1.0f;
    }
  }
  __device__ __forceinline__ void clear() {
    clear_state();
#pragma unroll
    for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;
  }
  // Of the work, the tile that comes first. Where nothing says that the count is uniform, ptxas may keep all that follows from the loop over
  // tiles in vector registers, every product's descriptors too: without a mask it does. With one, being told makes it serialise products.
  __device__ __forceinline__ int last_tile() const {
    return (SHAPE_CAUSAL ? item.tiles : whet::sm90::uniform(item.tiles)) - 1;
  }
  __device__ __forceinline__ void take_query() {
    query = side.q();
    side.wait_q();
  }
  __device__ __forceinline__ void finish_result() {
    done.head = item.head;
    done.row = item.row;
    result_of(done, state, scale, lse, side.lane);
  }
  __device__ __forceinline__ void write_done() {
    write_result(done, o, out, o_map, side.shared, side.lane);
  }
  __device__ __forceinline__ void finish_scores(float (&s)[kBlockKv / 2], int tile,
                                                bool may_need_mask) {
    whet::sm90::pin(s);
    side.release_k();
    if (tile == 0) side.release_q();
    if (__builtin_expect(negated, 0)) {
#pragma unroll
      for (int i = 0; i < kBlockKv / 2; ++i) s[i] = -s[i];
    }
    if (may_need_mask && tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, side.lane);
  }

  // Makes the probabilities of the last tile the left operand of its P V.
  __device__ __forceinline__ void take_probabilities() {
#pragma unroll
    for (int i = 0; i < kBlockKv / 4; ++i) p[i] = next_p[i] ^ zero;
    whet::sm90::pin(p);
  }

  // The first tile of a work with no P V beside it, and the writing of what is unwritten. False if the rows see no key.
  __device__ __forceinline__ bool first_tile(const Work& work) {
    item = item_at(work, side.warpgroup, warp, side.lane);
    item.head += item.batch * kHeadsQ;
    half = false;
    take_query();
    if (item.tiles == 0) side.release_q();
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      side.pass_keys(1);
      side.pass_values(1);
    }
    if (item.tiles == 0) {
      if (unwritten) write_done();
      clear();
      finish_result();
      unwritten = true;
      return false;
    }
    float s[kBlockKv / 2];
    side.wait_k();
    side.my_turn();
    whet::sm90::product_fence();
    issue_scores(s, query, side.k(), false);
    side.next_turn();
    if (unwritten) write_done();
    unwritten = false;
    clear();
    whet::sm90::product_wait<0>();
    finish_scores(s, item.tiles - 1, true);
    softmax(s, state, scale);
    pack(kSpeculate ? next_p : p, s);
    return true;
  }

  // Goes on to a work whose first step can go with the last of this one; false, and nothing changed, if it cannot.
  __device__ __forceinline__ bool begin(const Work& work) {
    Item candidate = item_at(work, side.warpgroup, warp, side.lane);
    candidate.head += candidate.batch * kHeadsQ;
    // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
    if (candidate.tiles == 0 || candidate.later >= kStages) return false;
    done.head = item.head;
    done.row = item.row;
    item = candidate;
    if constexpr (kHalves) {
      const int last_row = work.query_block * kBlockQ + side.warpgroup * kRows + kRows - 1;
      half = whet::sm90::uniform(last_row + kOffset - (item.tiles - 1) * kBlockKv) < kHalfKv;
    }
    take_query();
    side.pass_keys(item.later);
    return true;
  }

  // What is left to do of the steps before, while the scores of the next tile are computed and up to its P V.
  template <StepKind kKind>
  __device__ __forceinline__ void between_products(int tile) {
    if constexpr (kSpeculate && kKind != kSecondStep) rescale(o, state);
    if constexpr (kKind == kFirstStep) {
      result_of(done, state, scale, lse, side.lane);
      settle(done.inverse[0] + done.inverse[1], side.shared);
      clear_state();
    }
    if constexpr (kKind == kSecondStep) {
      // A branch, or the compiler would write between the products; it does not know that this is zero.
      if (zero == 0) write_done();
    }
    if (kKind != kFirstStep && tile == 0) next = side.mailbox.take();
    if constexpr (kSpeculate) take_probabilities();
  }

  // The scores of `tile`, P V of the tile before it, and the softmax beside that.
  template <StepKind kKind>
  __device__ __forceinline__ void step(int tile) {
    float s[kBlockKv / 2];  // new ones: nothing of the last tile's may tie its registers
    side.wait_k();
    side.my_turn();
    whet::sm90::pin(o);
    if constexpr (!kSpeculate) whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_scores(s, query, side.k(), kKind == kFirstStep && half);
    between_products<kKind>(tile);
    side.wait_v();
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), kKind != kSecondStep, kKind == kSecondStep && half);
    side.next_turn();
    whet::sm90::product_wait<1>();
    finish_scores(s, tile, kKind == kFirstStep ? !kSpeculate : kMasksLaterTiles);
    if constexpr (kSpeculate) {
      bool right = false;
      if constexpr (kKind != kFirstStep) {
        right = speculate(next_p, s, state, scale);
      } else if (guesses) {
        right = guess(next_p, s, state, scale, tile * kBlockKv, whet::sm90::uniform(item.row),
                      item.row, side.lane);
      }
      if (__builtin_expect(!right, 0)) {
        if constexpr (kKind == kFirstStep) mask(s, tile * kBlockKv, item.row, side.lane);
        softmax(s, state, scale);
        pack(next_p, s);
        if constexpr (kKind == kFirstStep) guesses = near_zero(state, scale);
      }
      whet::sm90::pin(next_p);
    } else {
      softmax(s, state, scale);
      whet::sm90::pin(s);
    }
    settle(state.total[0] + state.total[1], side.shared);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    if constexpr (kKind == kFirstStep) side.pass_values(item.later);
    if constexpr (!kSpeculate) {
      if constexpr (kKind != kFirstStep) rescale(o, state);
      pack(p, s);
    }
  }

  // The last P V with no scores beside it. `adds`: to what is in o.
  __device__ __forceinline__ void finish(int adds) {
    if constexpr (kSpeculate) {
      rescale(o, state);
      take_probabilities();
    }
    side.wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), adds, false);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    finish_result();
    unwritten = true;
  }
};

}  // namespace attention
