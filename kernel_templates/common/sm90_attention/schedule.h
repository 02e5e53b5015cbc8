// Who works on what: the order of the work of the grid, and how a block's warps learn of it. Include a shape.h before it,
// see problem.h.
#pragma once

#include "common/sm90_attention/queue.h"
#include "common/sm90_attention/ring.h"
#include "common/sm90_attention/work.h"

namespace attention {

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

// Calls do_work(work) for every work of this block, by the schedule of the grid, which every block works out for itself. One warp.
// kFirstAtOnce: as for follow_queue().
template <bool kFirstAtOnce = false, typename DoWork>
WHET_DEVICE void for_each_work(const DoWork& do_work) {
  if constexpr (TUNE_SCHEDULE == 1) {
    // Odd rounds go backwards, so that falling costs even out.
    const int bins = static_cast<int>(gridDim.x);
    const int mine = static_cast<int>(blockIdx.x);
    for (int round = 0;; ++round) {
      const int index = round * bins + ((round & 1) != 0 ? bins - 1 - mine : mine);
      if (index >= kWork) break;
      do_work(work_at(index));
    }
  } else {
    follow_queue<kFirstAtOnce>(do_work);
  }
}

WHET_DEVICE void schedule(Uint32 shared) {
  Mailbox mailbox{shared, {}};
  for_each_work<true>([&](const Work& work) { mailbox.put(work); });
  mailbox.put({-1, 0, 0});
}

}  // namespace attention
