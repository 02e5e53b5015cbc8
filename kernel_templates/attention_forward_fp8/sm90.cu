// Attention forward for NVIDIA Hopper from OCP e4m3.
//
// As the BF16 kernel (attention_forward/sm90.cu): consumer warpgroups of 64 query rows each take turns at the tensor cores, a producer
// warpgroup plans the work and feeds rings of shared memory, blocks run from one work into the next, tiles go from the last visible key to the
// first. What FP8 changes:
//   - the products take half the time, so the softmax is the bound. `direct` replaces exponential and rounding of four probabilities by four
//     multiply-adds and two packing conversions, see softmax.h;
//   - scores come out of the tensor cores in another order than probabilities go in. The copy engine lays the rows of K in shared memory so
//     that both orders are the same; where the number of keys is odd, lanes of a quad exchange bytes instead;
//   - V is transposed, and its tiles have one more row, of ones: the row sums come from the tensor cores, of the probabilities as rounded;
//   - the maximum is looked for among the levels, three at a time as integers, and only its passing the reference costs more;
//   - the loop over tiles, sm90/rows.h, has nothing else to decide: beside the tensor cores every instruction costs two to three times what it
//     does alone.
#include "attention_forward_fp8/sm90/load.h"
#include "attention_forward_fp8/sm90/rows.h"
#include "common/sm90_attention/roles.h"

namespace attention {

WHET_DEVICE void consume(Uint32 shared, int warpgroup, const Tensors& tensors) {
  Rows rows(shared, warpgroup, tensors);
  Work work = rows.side.mailbox.take();
  while (work.query_block >= 0) {
    if (!rows.first_tile(work)) {
      work = rows.side.mailbox.take();
      continue;
    }
    // From here a tile's output and the next tile's scores go together, also from one work to the next.
    int tile = rows.item.tiles - 1;  // the one whose probabilities are in rows.p
    int adds = 1;
#pragma unroll 1
    for (;;) {
      rows.later_steps(tile);
      work = rows.side.mailbox.take();
      if (work.query_block < 0 || !rows.begin(work)) break;
      tile = rows.item.tiles - 1;
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
}

}  // namespace attention

using namespace attention;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    WHET_ENTRY(const unsigned char* q, const unsigned char* k, const unsigned char* v,
               const float* q_scale, const float* k_scale, const float* v_scale,
               const float* lse_shift, unsigned short* o, float* lse, float scale,
               const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
               const __grid_constant__ TensorMap v_map,
               const __grid_constant__ TensorMap v_half_map,
               const __grid_constant__ TensorMap v_quarter_map) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // Swizzled panels must start at multiples of 1024 bytes.
  const Uint32 shared = (whet::sm90::shared_address(dynamic_shared) + 1023u) & ~1023u;

  if (threadIdx.x == 0) {
    whet::sm90::prefetch_map(&q_map);
    whet::sm90::prefetch_map(&k_map);
    whet::sm90::prefetch_map(&v_map);
    init_barriers(shared + kBarriersAt);
  }
  init_suspicions(shared);
  write_ones(shared, static_cast<int>(threadIdx.x), kThreads);
  __syncthreads();

  run_roles(
      shared, q_map, [&] { load_keys_and_values(shared, k_map, v_map, v_half_map, v_quarter_map); },
      [&](int warpgroup) {
        // A slope of zero would make hidden keys NaN: too small to matter will do.
        float slope = scale * 1.44269504088896340736f * kStep;
        if (fabsf(slope) < 1e-30f) slope = 1e-30f;
        consume(shared, warpgroup, {q_scale, k_scale, v_scale, lse_shift, o, lse, slope});
        if constexpr (SHAPE_CAUSAL) repair(shared, q, k, v, q_scale, k_scale, v_scale, o, scale);
      });
}
