// A consumer warpgroup's 64 query rows on their way through its work: the steps of the loop over tiles.
#pragma once

// The shape comes first.
// clang-format off
#include "attention_forward_fp8/sm90/output.h"
#include "attention_forward_fp8/sm90/products.h"
#include "common/sm90_attention/consumer.h"
// clang-format on

namespace attention {

// Steps have four kinds: the first tile of a work goes with the last P V of the work before, the second tile's P V overwrites that work's
// output once it is written, the one behind a promotion overwrites what was promoted, and all others only add. Each is a copy of the code of
// its own, so that the loop over the others has nothing to decide.
enum StepKind { kFirstStep, kSecondStep, kRestartStep, kLaterStep };

struct Rows {
  Consumer<kKBytes, kVStride, true> side;
  Tensors tensors;
  int warp;
  float hidden;
  Uint32 zero;  // unknown to the compiler

  Uint32 query = 0;
  Item item = {};
  Scales scales = {};
  float o[kOutputs / 2];
  Promoted promoted;
  Uint32 p[kWords];
  Softmax state;

  Result done = {};  // of the work before, while its output is still in o
  bool unwritten = false;

  __device__ __forceinline__ Rows(Uint32 shared, int warpgroup, const Tensors& its_tensors)
      : side(shared, warpgroup, static_cast<int>(threadIdx.x) % 32),
        tensors(its_tensors),
        warp(whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4)),
        hidden(its_tensors.slope < 0.0f ? -whet::negative_infinity() : whet::negative_infinity()),
        zero(static_cast<Uint32>(whet::sm90::uniform(static_cast<int>(threadIdx.x))) >> 16) {}

  __device__ __forceinline__ void clear_output() {
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) o[i] = 0.0f;
    clear(promoted);
  }
  __device__ __forceinline__ void take_query() {
    query = side.q();
    side.wait_q();
  }
  __device__ __forceinline__ Result result() const {
    Result r = {item.head, item.batch, item.row, scales.value, {}, {}, {}, item.tiles};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      r.bias[i] = state.bias[i];
      r.total[i] = state.total[i];
      if constexpr (kPromote) r.promoted[i] = state.risen[i] * part_units(state.depth[i]);
    }
    return r;
  }
  __device__ __forceinline__ void write_done() {
    write_result(done, o, promoted, tensors, side.shared, side.lane);
    clear(promoted);
    unwritten = false;
  }
  __device__ __forceinline__ void finish_scores(float (&s)[kScores], int tile, bool may_need_mask) {
    whet::sm90::pin(s);
    side.release_k();
    if (tile == 0) side.release_q();
    if (may_need_mask && tile >= item.whole_tiles)
      mask(s, tile * kBlockKv, item.row, hidden, side.lane);
  }

  // The first tile of a work with no P V beside it, and the writing of what is unwritten. False if the rows see no key.
  __device__ __forceinline__ bool first_tile(const Work& work) {
    if (unwritten) write_done();
    item = item_at(work, side.warpgroup, warp, side.lane);
    scales = scales_at(tensors, work, side.warpgroup);
    clear(state);
    state.total[0] = state.total[1] = 0.0f;
    clear_output();
    take_query();
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      side.pass_keys(1);
      side.pass_values(1);
    }
    if (item.tiles == 0) {
      side.release_q();
      done = result();
      unwritten = true;
      return false;
    }
    float s[kScores];
    float slope[kKScales];
    read_slopes(slope, scales, item.tiles - 1);
    side.wait_k();
    side.my_turn();
    whet::sm90::product_fence();
    issue_scores(s, query, side.k());
    side.next_turn();
    whet::sm90::product_wait<0>();
    finish_scores(s, item.tiles - 1, true);
    levels(s, state, slope);
    exponentials(s);
    pack(p, s, side.lane);
    return true;
  }

  // Goes on to a work whose first step can go with the last of this one; false, and nothing changed, if it cannot.
  __device__ __forceinline__ bool begin(const Work& work) {
    const Item next = item_at(work, side.warpgroup, warp, side.lane);
    // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
    if (next.tiles == 0 || next.later >= kStages) return false;
    done = result();
    clear(state);
    item = next;
    scales = scales_at(tensors, work, side.warpgroup);
    take_query();
    side.pass_keys(item.later);
    return true;
  }

  // The scores of `tile`, P V of the tile before it, and the softmax beside that.
  template <StepKind kKind>
  __device__ __forceinline__ void step(int tile) {
    float s[kScores];  // new ones: nothing of the last tile's may tie its registers
    float slope[kKScales];
    read_slopes(slope, scales, tile);
    side.wait_k();
    side.my_turn();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_scores(s, query, side.k());
    if constexpr (kKind == kSecondStep) {
      // The scores' products run meanwhile, and then the other warpgroups'. A branch, or the compiler would write between those products and
      // keep the turn.
      side.next_turn();
      if (zero == 0) write_done();
    }
    side.wait_v();
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), kKind == kFirstStep || kKind == kLaterStep);
    if constexpr (kKind != kSecondStep) side.next_turn();
    whet::sm90::product_wait<1>();
    finish_scores(s, tile, kKind == kFirstStep || kMasksLaterTiles);
    const int highest = levels(s, state, slope);
    exponentials(s);
    settle(static_cast<Uint32>(highest), side.shared);
    whet::sm90::pin(s);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    collect_sums(o, state);
    if constexpr (kKind == kFirstStep) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        done.total[r] = state.total[r];
        state.total[r] = 0.0f;
      }
      side.pass_values(item.later);
    } else {
      rescale(o, state);
    }
    pack(p, s, side.lane);
  }

  // The steps behind the second, from the tile before `tile` down to 0.
  __device__ __forceinline__ void later_steps(int tile) {
    bool restarts = promotes_after(tile + 1);
#pragma unroll 1
    while (tile > 0) {
      if (restarts) {
        promote(promoted, o, state);
        step<kRestartStep>(--tile);
      }
      const int stop = promotion_before(tile);
#pragma unroll 1
      while (tile > stop) step<kLaterStep>(--tile);
      restarts = true;
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
    collect_sums(o, state);
    done = result();
    unwritten = true;
  }
};

}  // namespace attention
