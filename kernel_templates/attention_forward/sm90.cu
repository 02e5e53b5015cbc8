// Attention forward for NVIDIA Hopper in BF16.
//
// A block has kWarpgroups consumer warpgroups, each with 64 query rows of one head, and a producer warpgroup whose warps plan the work and
// feed Q, K and V tiles through rings of shared memory with the copy engine. Scores, probabilities and output stay in registers: the
// scores' accumulator layout is, packed to BF16, the layout of the left operand of P V.
//
// Tiles of keys are taken from the last visible one down to the first, so that those that need a mask come first. What hides the softmax
// behind the matrix products:
//   - a warpgroup issues the scores of the next tile and P V of this one together, and does its softmax while P V runs (`overlap`);
//   - named barriers pass the right to issue products round the warpgroups, so that one does its softmax while others multiply;
//   - a block takes many query blocks and runs from one into the next: the first scores of the next are issued with the last P V of this
//     one, and this one's output is written while the scores after that are computed;
//   - with `speculate`, probabilities refer to the row maximum of earlier tiles, so they need not wait for this tile's; they are computed
//     anew only where their sum shows that this was too low.
// Query blocks with many visible keys come first, and heads are taken in groups whose keys and values fit in the L2 cache: reading them from
// memory again costs power, and so clock.
#include "attention_forward/sm90/load.h"
#include "attention_forward/sm90/output.h"
#include "attention_forward/sm90/products.h"
#include "common/sm90_attention/consumer.h"
#include "common/sm90_attention/roles.h"

namespace attention {

WHET_DEVICE void consume(Uint32 shared, int warpgroup, unsigned short* out, float* lse,
                         float raw_scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = whet::sm90::uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  // A negative scale turns the order of the scores round: they are negated instead. Zero becomes too small to matter.
  const float scale = fmaxf(fabsf(raw_scale), 1e-30f) * 1.44269504088896340736f;

  Consumer<kKBytes, kVBytes, kPingPong> side(shared, warpgroup, lane);
  Query query;
  const auto take_query = [&] {
    query.shared = side.q();
    side.wait_q();
    if constexpr (kQueryInRegisters) {
      read_query(query, warp, lane);
      side.release_q();
    }
  };

  Item item = {};
  float o[kDv / 2];
  Uint32 p[kBlockKv / 4];
  // The products that run read p, so its successor must be other registers until they are done. A plain copy would be optimised away, and
  // the products made to wait instead; the compiler does not know that this is zero.
  const Uint32 zero = static_cast<Uint32>(whet::sm90::uniform(static_cast<int>(threadIdx.x))) >> 16;
  Softmax state;
  const auto clear_state = [&] {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.top[r] = whet::negative_infinity();
      state.total[r] = 0.0f;
      state.shrink[r] = 1.0f;
    }
  };
  const auto clear_output = [&] {
#pragma unroll
    for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;
  };
  const auto finish_scores = [&](float(&s)[kBlockKv / 2], int tile) {
    whet::sm90::pin(s);
    side.release_k();
    if (!kQueryInRegisters && tile == 0) side.release_q();
    if (raw_scale < 0.0f) {
#pragma unroll
      for (int i = 0; i < kBlockKv / 2; ++i) s[i] = -s[i];
    }
    if (tile >= item.whole_tiles) mask(s, tile * kBlockKv, item.row, lane);
  };

  Work work = side.mailbox.take();
  while (work.query_block >= 0) {
    // The first tile of a work, with nothing to overlap it.
    item = item_at(work, warpgroup, warp, lane);
    clear_state();
    clear_output();
    take_query();
    if (item.tiles == 0) {
      if constexpr (!kQueryInRegisters) side.release_q();
#pragma unroll 1
      for (int i = 0; i < item.later; ++i) {
        side.pass_keys(1);
        side.pass_values(1);
      }
      write_item(item, o, state.top, state.total, scale, out, lse, shared, lane);
      work = side.mailbox.take();
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < item.later; ++i) {
      side.pass_keys(1);
      side.pass_values(1);
    }
    {
      float s[kBlockKv / 2];
      side.wait_k();
      side.my_turn();
      whet::sm90::product_fence();
      issue_scores(s, query, side.k());
      side.next_turn();
      whet::sm90::product_wait<0>();
      finish_scores(s, item.tiles - 1);
      softmax(s, state, scale);
      pack(p, s);
    }

    // From here a tile's output and the next tile's scores go together, also from one work to the next.
    int tile = item.tiles - 1;  // the one whose probabilities are in p
    Item done = item;
    float done_top[2] = {0.0f, 0.0f};
    float done_total[2] = {0.0f, 0.0f};
    bool unwritten = false;  // o is still the output of `done`
#pragma unroll 1
    for (;;) {
      bool starts = false;
      if (tile == 0) {
        // The last work of a single tile is still in o.
        if (unwritten) {
          write_item(done, o, done_top, done_total, scale, out, lse, shared, lane);
          clear_output();
          unwritten = false;
        }
        done = item;
        work = side.mailbox.take();
        if (!kOverlap || work.query_block < 0) break;
        item = item_at(work, warpgroup, warp, lane);
        // Passing a ring full of tiles while the last V of this work is still held would make the others, who need its place, wait for ever.
        if (item.tiles == 0 || item.later >= kStages) {
          item = done;
          break;
        }
        starts = true;
        take_query();
        side.pass_keys(item.later);
        tile = item.tiles;
      }
      --tile;
      if constexpr (kOverlap) {
        float
            s[kBlockKv / 2];  // a new one: nothing of the last tile's scores may tie its registers
        side.wait_k();
        side.my_turn();
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_scores(s, query, side.k());
        const bool writes = unwritten;
        if (writes) {
          // The scores' products run meanwhile, and then the other warpgroups'.
          side.next_turn();
          write_item(done, o, done_top, done_total, scale, out, lse, shared, lane);
        }
        side.wait_v();
        whet::sm90::product_fence();
        issue_output(o, p, side.v(), !writes);
        if (!writes) side.next_turn();
        unwritten = starts;
        whet::sm90::product_wait<1>();
        finish_scores(s, tile);
        if (starts) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            done_top[r] = state.top[r];
            done_total[r] = state.total[r];
          }
          clear_state();
        }
        Uint32 next_p[kBlockKv / 4];
        if constexpr (TUNE_SPECULATE) {
          if (starts || !speculate(next_p, s, state, scale)) {
            softmax(s, state, scale);
            pack(next_p, s);
          }
          whet::sm90::pin(next_p);
        } else {
          softmax(s, state, scale);
          whet::sm90::pin(s);
        }
        settle(state, shared);
        whet::sm90::product_wait<0>();
        whet::sm90::pin(o);
        side.release_v();
        if (starts) {
          side.pass_values(item.later);
        } else {
          rescale(o, state);
        }
        if constexpr (TUNE_SPECULATE) {
#pragma unroll
          for (int i = 0; i < kBlockKv / 4; ++i) p[i] = next_p[i] ^ zero;
        } else {
          pack(p, s);
        }
      } else {
        side.wait_v();
        whet::sm90::pin(o);
        whet::sm90::pin(p);
        whet::sm90::product_fence();
        issue_output(o, p, side.v(), 1);
        whet::sm90::product_wait<0>();
        whet::sm90::pin(o);
        side.release_v();
        float s[kBlockKv / 2];
        side.wait_k();
        whet::sm90::product_fence();
        issue_scores(s, query, side.k());
        whet::sm90::product_wait<0>();
        finish_scores(s, tile);
        softmax(s, state, scale);
        rescale(o, state);
        pack(p, s);
      }
    }

    side.wait_v();
    whet::sm90::pin(o);
    whet::sm90::pin(p);
    whet::sm90::product_fence();
    issue_output(o, p, side.v(), 1);
    whet::sm90::product_wait<0>();
    whet::sm90::pin(o);
    side.release_v();
    write_item(item, o, state.top, state.total, scale, out, lse, shared, lane);
  }
}

}  // namespace attention

using namespace attention;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    WHET_ENTRY(const unsigned short* q, const unsigned short* k, const unsigned short* v,
               unsigned short* o, float* lse, float scale, const __grid_constant__ TensorMap q_map,
               const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // Swizzled panels must start at multiples of 1024 bytes.
  const Uint32 shared = (whet::sm90::shared_address(dynamic_shared) + 1023u) & ~1023u;

  if (threadIdx.x == 0) {
    whet::sm90::prefetch_map(&q_map);
    whet::sm90::prefetch_map(&k_map);
    whet::sm90::prefetch_map(&v_map);
    init_barriers(shared + kBarriersAt);
  }
  if (threadIdx.x < 128 * kWarpgroups && threadIdx.x % 32 == 0)
    whet::sm90::store_shared(suspicion_at(shared), 0);
  __syncthreads();

  run_roles(
      shared, q_map, [&] { load_keys_and_values(shared, k_map, v_map); },
      [&](int warpgroup) {
        consume(shared, warpgroup, o, lse, scale);
        if constexpr (SHAPE_CAUSAL) repair(shared, q, k, v, o, scale * 1.44269504088896340736f);
      });
}
