// Attention forward for NVIDIA Hopper in BF16.
//
// A block has kWarpgroups consumer warpgroups, each with 64 query rows of one head, and a producer warpgroup whose warps plan the work and
// feed Q, K and V tiles through rings of shared memory with the copy engine. Scores, probabilities and output stay in registers: the
// scores' accumulator layout is, packed to BF16, the layout of the left operand of P V.
//
// Tiles of keys are taken from the last visible one down to the first, so that those that need a mask come first. What hides the softmax
// behind the matrix products:
//   - a warpgroup issues the scores of the next tile and P V of this one together, and does its softmax while P V runs;
//   - named barriers pass the right to issue products round the warpgroups, so that one does its softmax while others multiply;
//   - a block takes many query blocks and runs from one into the next: the first scores of the next are issued with the last P V of this
//     one, and this one's output is written while the scores after that are computed;
//   - with `speculate`, probabilities refer to the row maximum of earlier tiles, so they need not wait for this tile's; they are computed
//     anew only where their sum shows that this was too low.
// Query blocks with many visible keys come first, and heads are taken in groups whose keys and values fit in the L2 cache: reading them from
// memory again costs power, and so clock.
#include "attention_forward/sm90/load.h"
#include "attention_forward/sm90/rows.h"
#include "common/sm90_attention/roles.h"

namespace attention {

WHET_DEVICE void consume(Uint32 shared, int warpgroup, unsigned short* out, float* lse, float scale,
                         const TensorMap* o_map) {
  Rows rows(shared, warpgroup, out, lse, scale, o_map);
  Work work = rows.side.mailbox.take();
  while (work.query_block >= 0) {
    if (!rows.first_tile(work)) {
      work = rows.side.mailbox.take();
      continue;
    }
    // From here a tile's output and the next tile's scores go together, also from one work to the next.
    int tile = rows.last_tile();  // the one whose probabilities there are
    int adds = 1;
    if (tile == 0) rows.next = rows.side.mailbox.take();
#pragma unroll 1
    for (;;) {
#pragma unroll 1
      while (tile > 0) rows.step<kLaterStep>(--tile);
      work = rows.next;
      if (work.query_block < 0 || !rows.begin(work)) break;
      tile = rows.last_tile();
      rows.step<kFirstStep>(tile);
      if (tile == 0) {
        // A work of a single tile is over before its second step could write what was left.
        rows.write_done();
        adds = 0;
        work = rows.side.mailbox.take();
        break;
      }
      rows.step<kSecondStep>(--tile);
    }
    rows.finish(adds);
  }
  if (rows.unwritten) rows.write_done();
  if constexpr (kStaged) whet::sm90::store_wait();
}

}  // namespace attention

using namespace attention;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    WHET_ENTRY(const unsigned short* q, const unsigned short* k, const unsigned short* v,
               unsigned short* o, float* lse, float scale, const __grid_constant__ TensorMap q_map,
               const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
               const __grid_constant__ TensorMap o_map) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // Swizzled panels must start at multiples of 1024 bytes.
  const Uint32 shared = (whet::sm90::shared_address(dynamic_shared) + 1023u) & ~1023u;

  if (threadIdx.x == 0) {
    whet::sm90::prefetch_map(&q_map);
    whet::sm90::prefetch_map(&k_map);
    whet::sm90::prefetch_map(&v_map);
    if constexpr (kStaged) whet::sm90::prefetch_map(&o_map);
    init_barriers(shared + kBarriersAt);
  }
  init_suspicions(shared);
  __syncthreads();

  run_roles(
      shared, q_map, [&] { load_keys_and_values(shared, k_map, v_map); },
      [&](int warpgroup) {
        consume(shared, warpgroup, o, lse, scale, &o_map);
        if constexpr (SHAPE_CAUSAL) repair(shared, q, k, v, o, scale * 1.44269504088896340736f);
      });
}
