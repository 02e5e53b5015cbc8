// A consumer warpgroup's side of the rings of shared memory, and its turns at the tensor cores. Include a shape.h before it, see problem.h.
//
//   Consumer side(shared, warpgroup, lane);
//   side.wait_k();
//   side.my_turn();
//   ...                       // issue products with side.k()
//   side.next_turn();
//   ...                       // wait for them
//   side.release_k();
#pragma once

#include "common/sm90_attention/schedule.h"

namespace attention {

// kTakesTurns: named barriers pass the right to issue products round the warpgroups.
template <int kKStride, int kVStride, bool kTakesTurns>
struct Consumer {
  Uint32 shared;
  int warpgroup;
  int lane;
  Mailbox mailbox;
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  Ring<kQStages> q_ring;

  __device__ __forceinline__ Consumer(Uint32 shared_address, int its_warpgroup, int its_lane)
      : shared(shared_address),
        warpgroup(its_warpgroup),
        lane(its_lane),
        mailbox{shared_address, {}} {
    if (warpgroup == kWarpgroups - 1) next_turn();
  }

  __device__ __forceinline__ Uint32 barrier(int index) const {
    return shared + kBarriersAt + 8 * index;
  }
  __device__ __forceinline__ void release(int index) const {
    if (lane == 0) whet::sm90::arrive(barrier(index));
  }

  // Where the tile is that the ring has come to.
  __device__ __forceinline__ Uint32 k() const { return shared + kKAt + k_ring.stage * kKStride; }
  __device__ __forceinline__ Uint32 v() const { return shared + kVAt + v_ring.stage * kVStride; }
  __device__ __forceinline__ Uint32 q() const { return shared + kQAt + q_place() * kQBytes; }

  __device__ __forceinline__ void wait_k() const {
    whet::sm90::wait(barrier(kFullK + k_ring.stage), k_ring.parity);
  }
  __device__ __forceinline__ void wait_v() const {
    whet::sm90::wait(barrier(kFullV + v_ring.stage), v_ring.parity);
  }
  __device__ __forceinline__ void wait_q() const {
    whet::sm90::wait(barrier(kFullQ + q_place()), q_ring.parity);
  }
  __device__ __forceinline__ void release_k() {
    release(kEmptyK + k_ring.stage);
    k_ring.advance();
  }
  __device__ __forceinline__ void release_v() {
    release(kEmptyV + v_ring.stage);
    v_ring.advance();
  }
  __device__ __forceinline__ void release_q() {
    release(kEmptyQ + q_place());
    q_ring.advance();
  }

  __device__ __forceinline__ void my_turn() const {
    if constexpr (kTakesTurns) whet::sm90::named_wait(1 + warpgroup, 256);
  }
  __device__ __forceinline__ void next_turn() const {
    if constexpr (kTakesTurns) whet::sm90::named_arrive(1 + (warpgroup + 1) % kWarpgroups, 256);
  }

  // K tiles of a work that only other warpgroups see; every turn is given away.
  __device__ __forceinline__ void pass_keys(int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_k();
      release_k();
      my_turn();
      next_turn();
    }
  }
  __device__ __forceinline__ void pass_values(int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_v();
      release_v();
    }
  }

 private:
  __device__ __forceinline__ int q_place() const { return q_ring.stage * kWarpgroups + warpgroup; }
};

}  // namespace attention
