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
//   - the maximum is looked for among the levels, three at a time as integers, and only its passing the reference costs more.
#include "attention_forward_fp8/sm90/load.h"
#include "attention_forward_fp8/sm90/output.h"
#include "attention_forward_fp8/sm90/products.h"
#include "common/sm90_attention/consumer.h"
#include "common/sm90_attention/roles.h"

namespace attention {

WHET_DEVICE void consume(Uint32 shared, int warpgroup, const Tensors& tensors) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  const float hidden =
      tensors.slope < 0.0f ? -whet::negative_infinity() : whet::negative_infinity();

  Consumer<kKBytes, kVStride, true> side(shared, warpgroup, lane);
  Uint32 query = 0;
  const auto take_query = [&] {
    query = side.q();
    side.wait_q();
  };

  Item item = {};
  Scales scales = {};
  float slope[kKScales];
  float o[kOutputs / 2];  // of the products
  Promoted promoted;
  Uint32 p[kWords];
  Softmax state;
  const auto clear_output = [&] {
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) o[i] = 0.0f;
    clear(promoted);
  };
  const auto finish_scores = [&](float(&s)[kScores], int tile) {
    whet::sm90::pin(s);
    side.release_k();
    if (tile == 0) side.release_q();
    if (tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, hidden, lane);
  };
  const auto result = [&] {
    Result r = {item.head, item.batch, item.row, scales.value, {}, {}, {}, item.tiles};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      r.bias[i] = state.bias[i];
      r.total[i] = state.total[i];
      if constexpr (kPromote) r.promoted[i] = state.risen[i] * part_units(state.depth[i]);
    }
    return r;
  };

  Work work = side.mailbox.take();
  while (work.query_block >= 0) {
    // The first tile of a work, with nothing to overlap it.
    item = item_at(work, warpgroup, warp, lane);
    scales = scales_at(tensors, work, warpgroup);
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
      write_result(result(), o, promoted, tensors, shared, lane);
      work = side.mailbox.take();
      continue;
    }
    {
      float s[kScores];
      read_slopes(slope, scales, item.tiles - 1);
      side.wait_k();
      side.my_turn();
      whet::sm90::product_fence();
      issue_scores(s, query, side.k());
      side.next_turn();
      whet::sm90::product_wait<0>();
      finish_scores(s, item.tiles - 1);
      levels(s, state, slope);
      exponentials(s);
      pack(p, s, lane);
    }

    // From here a tile's output and the next tile's scores go together, also from one work to the next.
    int tile = item.tiles - 1;  // the one whose probabilities are in p
    Result done = {};
    bool unwritten = false;  // o is still the output of `done`
#pragma unroll 1
    for (;;) {
      bool starts = false;
      if (tile == 0) {
        // The last work of a single tile is still in o.
        if (unwritten) {
          write_result(done, o, promoted, tensors, shared, lane);
          clear_output();
          unwritten = false;
        }
        work = side.mailbox.take();
        if (work.query_block < 0) break;
        const Item next = item_at(work, warpgroup, warp, lane);
        // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
        if (next.tiles == 0 || next.later >= kStages) break;
        done = result();
        item = next;
        scales = scales_at(tensors, work, warpgroup);
        starts = true;
        take_query();
        side.pass_keys(item.later);
        tile = item.tiles;
      }
      --tile;
      float s[kScores];  // a new one: nothing of the last tile's scores may tie its registers
      read_slopes(slope, scales, tile);
      side.wait_k();
      side.my_turn();
      whet::sm90::pin(o);
      whet::sm90::pin(p);
      whet::sm90::product_fence();
      issue_scores(s, query, side.k());
      const bool writes = unwritten;
      // The scores' products run meanwhile.
      const bool promotes = !starts && promotes_after(tile + 2);
      if (writes) {
        side.next_turn();  // so do the other warpgroups'
        write_result(done, o, promoted, tensors, shared, lane);
        clear(promoted);
      } else if (promotes) {
        promote(promoted, o, state);
      }
      side.wait_v();
      whet::sm90::product_fence();
      issue_output(o, p, side.v(), !(writes || promotes));
      if (!writes) side.next_turn();
      unwritten = starts;
      whet::sm90::product_wait<1>();
      finish_scores(s, tile);
      if (starts) clear(state);
      const int highest = levels(s, state, slope);
      exponentials(s);
      settle(static_cast<Uint32>(highest), shared);
      whet::sm90::pin(s);
      whet::sm90::product_wait<0>();
      whet::sm90::pin(o);
      side.release_v();
      collect_sums(o, state);
      if (starts) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          done.total[r] = state.total[r];
          state.total[r] = 0.0f;
        }
        side.pass_values(item.later);
      } else {
        rescale(o, state);
      }
      pack(p, s, lane);
    }

    side.wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), 1);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    collect_sums(o, state);
    write_result(result(), o, promoted, tensors, shared, lane);
  }
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
