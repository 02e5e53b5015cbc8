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

namespace attention {

WHET_DEVICE void consume(Uint32 shared, int warpgroup, const Tensors& tensors) {
  const Uint32 barriers = shared + kBarriersAt;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  const float hidden =
      tensors.slope < 0.0f ? -whet::negative_infinity() : whet::negative_infinity();

  Mailbox mailbox{shared, {}};
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  Ring<kQStages> q_ring;
  const auto wait_k = [&] {
    whet::sm90::wait(barriers + 8 * (kFullK + k_ring.stage), k_ring.parity);
  };
  const auto wait_v = [&] {
    whet::sm90::wait(barriers + 8 * (kFullV + v_ring.stage), v_ring.parity);
  };
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
  const auto my_turn = [&] { whet::sm90::named_wait(1 + warpgroup, 256); };
  const auto next_turn = [&] { whet::sm90::named_arrive(1 + (warpgroup + 1) % kWarpgroups, 256); };
  if (warpgroup == kWarpgroups - 1) next_turn();

  Uint32 query = 0;
  const auto give_query = [&] {
    release(kEmptyQ + q_ring.stage * kWarpgroups + warpgroup);
    q_ring.advance();
  };
  const auto take_query = [&] {
    const int place = q_ring.stage * kWarpgroups + warpgroup;
    query = shared + kQAt + place * kQBytes;
    whet::sm90::wait(barriers + 8 * (kFullQ + place), q_ring.parity);
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
  Scales scales = {};
  float slope[kKScales];
  float o[kOutputs / 2];  // of the products
  float whole[kPromote ? kDv / 2 : 1];
  Uint32 p[kWords];
  bool fresh = true;  // the next P V starts from zero
  Softmax state;
  const auto clear_whole = [&] {
    if constexpr (kPromote) {
#pragma unroll
      for (int i = 0; i < kDv / 2; ++i) whole[i] = 0.0f;
    }
  };
  const auto clear_output = [&] {
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) o[i] = 0.0f;
    clear_whole();
  };
  const auto write = [&](const Result& r) {
    if constexpr (kPromote) {
      write_result(r, whole, tensors, lane);
    } else {
      write_result(r, o, tensors, lane);
    }
  };
  const auto finish_scores = [&](float(&s)[kScores], int tile) {
    whet::sm90::pin(s);
    release_k();
    if (tile == 0) give_query();
    if (tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, hidden, lane);
  };
  const auto finish_output = [&] {
    wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, shared + kVAt + v_ring.stage * kVStride, !fresh);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    release_v();
    collect(o, whole, state, true);
  };
  const auto result = [&] {
    Result r = {item.head, item.batch, item.row, scales.value, {}, {}};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      r.bias[i] = state.bias[i];
      r.total[i] = state.total[i];
    }
    return r;
  };

  Work work = mailbox.take();
  while (work.query_block >= 0) {
    // The first tile of a work, with nothing to overlap it.
    item = item_at(work, warpgroup, warp, lane);
    scales = scales_at(tensors, work, warpgroup);
    clear(state);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.total[r] = 0.0f;
      state.pending[r] = 1.0f;
    }
    clear_output();
    fresh = false;
    take_query();
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      pass_keys(1);
      pass_values(1);
    }
    if (item.tiles == 0) {
      give_query();
      write(result());
      work = mailbox.take();
      continue;
    }
    {
      float s[kScores];
      read_slopes(slope, scales, item.tiles - 1);
      wait_k();
      my_turn();
      whet::sm90::product_fence();
      issue_scores(s, query, shared + kKAt + k_ring.stage * kKBytes);
      next_turn();
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
          write(done);
          clear_output();
          fresh = false;
          unwritten = false;
        }
        work = mailbox.take();
        if (work.query_block < 0) break;
        const Item next = item_at(work, warpgroup, warp, lane);
        // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
        if (next.tiles == 0 || next.later >= kStages) break;
        done = result();
        item = next;
        scales = scales_at(tensors, work, warpgroup);
        starts = true;
        take_query();
        pass_keys(item.later);
        tile = item.tiles;
      }
      --tile;
      float s[kScores];  // a new one: nothing of the last tile's scores may tie its registers
      read_slopes(slope, scales, tile);
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
        write(done);
        clear_whole();
      }
      wait_v();
      whet::sm90::product_fence();
      issue_output(o, p, shared + kVAt + v_ring.stage * kVStride, !fresh);
      if (!writes) next_turn();
      unwritten = starts;
      whet::sm90::product_wait<1>();
      finish_scores(s, tile);
      if (starts) {
        clear(state);
      }
      const int highest = levels(s, state, slope);
      exponentials(s);
      settle(static_cast<Uint32>(highest), shared);
      whet::sm90::pin(s);
      whet::sm90::product_wait<0>();
      whet::sm90::pin(o);
      release_v();
      const bool promotes = starts || (tile + 1) % kPromoteTiles == 0;
      collect(o, whole, state, promotes);
      fresh = starts || (kPromote && promotes);
      if (starts) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          state.pending[r] = 1.0f;
          done.total[r] = state.total[r];
          state.total[r] = 0.0f;
        }
        pass_values(item.later);
      } else {
        rescale(o, state);
      }
      pack(p, s, lane);
    }
    finish_output();
    write(result());
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
  write_ones(shared, static_cast<int>(threadIdx.x), kThreads);
  __syncthreads();

  if (warpgroup == kWarpgroups) {
    whet::sm90::shrink_registers<kProducerRegisters>();
    const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
    if (warp == 0) {
      load_keys_and_values(shared, k_map, v_map, v_half_map, v_quarter_map);
    } else if (warp == 1) {
      load_queries(shared, q_map);
    } else if (warp == 2) {
      schedule(shared);
    }
  } else {
    whet::sm90::grow_registers<kConsumerRegisters>();
    // A slope of zero would make hidden keys NaN: too small to matter will do.
    float slope = scale * 1.44269504088896340736f * kStep;
    if (fabsf(slope) < 1e-30f) slope = 1e-30f;
    consume(shared, warpgroup, {q_scale, k_scale, v_scale, lse_shift, o, lse, slope});
  }
}
