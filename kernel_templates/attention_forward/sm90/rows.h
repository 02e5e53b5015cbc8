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
  bool negated;  // a negative scale turns the order of the scores round: they are negated instead
  float scale;   // positive, with log2(e); zero becomes too small to matter
  int warp;
  // The products that run read p, so its successor must be other registers until they are done. A plain copy would be optimised away, and
  // the products made to wait instead; the compiler does not know that this is zero.
  Uint32 zero;

  Query query;
  Item item;
  float o[kDv / 2];
  Uint32 p[kBlockKv / 4];
  Softmax state;

  Item before;  // the work before, until its result is known
  Result done;  // of the work before, while its output is still in o
  bool unwritten = false;

  __device__ __forceinline__ Rows(Uint32 shared, int warpgroup, unsigned short* to, float* to_lse,
                                  float raw_scale)
      : side(shared, warpgroup, static_cast<int>(threadIdx.x) % 32),
        out(to),
        lse(to_lse),
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
  __device__ __forceinline__ void take_query() {
    query.shared = side.q();
    side.wait_q();
    if constexpr (kQueryInRegisters) {
      read_query(query, warp, side.lane);
      side.release_q();
    }
  }
  __device__ __forceinline__ void write_done() {
    write_result(done, o, out, side.shared, side.lane);
  }
  __device__ __forceinline__ void finish_scores(float (&s)[kBlockKv / 2], int tile,
                                                bool may_need_mask) {
    whet::sm90::pin(s);
    side.release_k();
    if (!kQueryInRegisters && tile == 0) side.release_q();
    if (__builtin_expect(negated, 0)) {
#pragma unroll
      for (int i = 0; i < kBlockKv / 2; ++i) s[i] = -s[i];
    }
    if (may_need_mask && tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, side.lane);
  }

  // The first tile of a work with no P V beside it, and the writing of what is unwritten. False if the rows see no key.
  __device__ __forceinline__ bool first_tile(const Work& work) {
    item = item_at(work, side.warpgroup, warp, side.lane);
    take_query();
    if (!kQueryInRegisters && item.tiles == 0) side.release_q();
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      side.pass_keys(1);
      side.pass_values(1);
    }
    if (item.tiles == 0) {
      if (unwritten) write_done();
      clear();
      done = result_of(item, state, scale, lse, side.lane);
      unwritten = true;
      return false;
    }
    float s[kBlockKv / 2];
    side.wait_k();
    side.my_turn();
    whet::sm90::product_fence();
    issue_scores(s, query, side.k());
    side.next_turn();
    if (unwritten) write_done();
    unwritten = false;
    clear();
    whet::sm90::product_wait<0>();
    finish_scores(s, item.tiles - 1, true);
    softmax(s, state, scale);
    pack(p, s);
    return true;
  }

  // Goes on to a work whose first step can go with the last of this one; false, and nothing changed, if it cannot.
  __device__ __forceinline__ bool begin(const Work& work) {
    const Item next = item_at(work, side.warpgroup, warp, side.lane);
    // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
    if (next.tiles == 0 || next.later >= kStages) return false;
    before = item;
    item = next;
    take_query();
    side.pass_keys(item.later);
    return true;
  }

  // The scores of `tile`, P V of the tile before it, and the softmax beside that.
  template <StepKind kKind>
  __device__ __forceinline__ void step(int tile) {
    float s[kBlockKv / 2];  // new ones: nothing of the last tile's may tie its registers
    side.wait_k();
    side.my_turn();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_scores(s, query, side.k());
    if constexpr (kKind == kSecondStep) {
      // The scores' products run meanwhile, and then the other warpgroups'. A branch, or the compiler would write between those products and
      // keep the turn; it does not know that this is zero.
      side.next_turn();
      if (zero == 0) write_done();
    }
    side.wait_v();
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), kKind != kSecondStep);
    if constexpr (kKind != kSecondStep) side.next_turn();
    whet::sm90::product_wait<1>();
    finish_scores(s, tile, kKind == kFirstStep || kMasksLaterTiles);
    if constexpr (kKind == kFirstStep) {
      done = result_of(before, state, scale, lse, side.lane);
      clear_state();
    }
    Uint32 next_p[kBlockKv / 4];
    if constexpr (kSpeculate) {
      bool right = false;
      if constexpr (kKind != kFirstStep) right = speculate(next_p, s, state, scale);
      if (kKind == kFirstStep || __builtin_expect(!right, 0)) {
        softmax(s, state, scale);
        pack(next_p, s);
      }
      whet::sm90::pin(next_p);
    } else {
      softmax(s, state, scale);
      whet::sm90::pin(s);
    }
    settle(state, side.shared);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    if constexpr (kKind == kFirstStep) {
      side.pass_values(item.later);
    } else {
      rescale(o, state);
    }
    if constexpr (kSpeculate) {
#pragma unroll
      for (int i = 0; i < kBlockKv / 4; ++i) p[i] = next_p[i] ^ zero;
    } else {
      pack(p, s);
    }
  }

  // The last P V with no scores beside it. `adds`: to what is in o.
  __device__ __forceinline__ void finish(int adds) {
    side.wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), adds);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    done = result_of(item, state, scale, lse, side.lane);
    unwritten = true;
  }
};

}  // namespace attention
