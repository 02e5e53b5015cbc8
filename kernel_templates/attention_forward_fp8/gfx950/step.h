// The order of matrix and vector work: a step of one stream, or the two phases of a ping-pong.
#pragma once

#include "attention_forward_fp8/gfx950/rows.h"
#include "attention_forward_fp8/gfx950/tile.h"

namespace {

// Which bytes of a lane's 32 of V belong to keys that exist: those before `keys` of the half tile.
WHET_DEVICE Int8 existing_bytes(int keys, int half) {
  Int8 bytes;
  WHET_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int left = keys - (32 * (i / 4) + 16 * half + 4 * (i % 4));
    const unsigned few = left > 0 ? (1u << (8 * (left & 3))) - 1u : 0u;
    bytes[i] = static_cast<int>(left >= 4 ? 0xffffffffu : few);
  }
  return bytes;
}

// How many eights of scores must be weights by the end of a slot's vector work.
template <bool kHasNext>
constexpr int eights_due(int slot) {
  if (slot < (kHasNext ? 0 : kScoreSlots)) return 0;
  if (!kHasNext || slot + 1 >= kScoreSlots) return kEights;
  return (slot + 1) * kEights / kScoreSlots;
}

template <bool kHasNext, int kSlot>
WHET_DEVICE void round_due(Packed& weights, const Rows& w, const Scores& now) {
  whet::for_each<eights_due<kHasNext>(kSlot - 1), eights_due<kHasNext>(kSlot)>([&](
      auto number) __attribute__((always_inline)) {
    round_eight(weights, w, now, decltype(number)::kValue);
  });
}

// One step: scores of the half tile after `now` into `next` (where kHasNext), and the output of `now`. `before_values` runs between the
// last read of K and the first of V, `beside` after the matrix instructions of each slot.
template <bool kHasNext, bool kHasAfter, bool kTail, class Middle, class Beside>
WHET_DEVICE void step(Rows (&w)[kGroups], Int8 (&ahead)[kLead], const Ones& ones,
                      Scores (&now)[kGroups], Scores (&next)[kGroups], const Problem& problem,
                      int now_key0, bool mask_next, const Places& next_keys, int next_half,
                      const Places& after_keys, int after_half, const Places& values,
                      int value_half, Middle before_values, Beside beside) {
  constexpr int kFirst = kHasNext ? 0 : kScoreSlots;
  Packed weights[kGroups];
  // One fragment per slot: those of K, those of V, then the first of the next step's K.
  Int8 fragment[kSlots + kLead];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f < kScoreSlots) {
      fragment[f] = read_keys(next_keys, f / kDepth + 2 * next_half, f % kDepth);
    } else if (f < kSlots) {
      fragment[f] = read_values(values, f - kScoreSlots, value_half);
    } else if (kHasAfter) {
      fragment[f] =
          read_keys(after_keys, (f - kSlots) / kDepth + 2 * after_half, (f - kSlots) % kDepth);
    }
  };
  if (!kHasNext) before_values();
  WHET_UNROLL
  for (int f = 0; f < kLead; ++f) {
    if (kHasNext) {
      fragment[f] = ahead[f];
    } else {
      read(kScoreSlots + f);
    }
  }
  Int8 existing = {};
  if (kTail) existing = existing_bytes(static_cast<int>(kSeqKv) - now_key0, problem.half);
  whet::for_each<kFirst, kSlots>([&](auto constant) __attribute__((always_inline)) {
    constexpr int slot = decltype(constant)::kValue;
    if constexpr (kHasNext && slot == kScoreSlots - kLead) before_values();
    read(slot + kLead);
    if constexpr (slot == kScoreSlots) {
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) round_due<kHasNext, slot>(weights[g], w[g], now[g]);
      settle();
    }
    Int8 operand = fragment[slot];
    if (kTail && slot >= kScoreSlots) {
      operand &= existing;
    }
    // A group's vector work beside its own matrix instruction, or those of several would stand in line with nothing beside them.
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (slot < kScoreSlots) {
        multiply_scores<slot % kDepth>(next[g].block[slot / kDepth], operand, w[g]);
        round_due<kHasNext, slot>(weights[g], w[g], now[g]);
      } else {
        constexpr int column = slot - kScoreSlots;
        multiply_output(w[g].output[column], operand, weights[g].operand(), w[g]);
        if constexpr (column == 0) add_to_totals(w[g], weights[g].operand(), ones);
        if constexpr (kHasNext) {
          whet::for_each<column * kFours / kOutputSlots, (column + 1) * kFours / kOutputSlots>([&](
              auto number) __attribute__((always_inline)) {
            max_four(w[g], next[g], decltype(number)::kValue);
          });
        }
      }
      if (g + 1 < kGroups) whet::schedule_fence();
    }
    beside(constant);
    whet::schedule_fence();
  });
  if (kHasAfter) {
    WHET_UNROLL
    for (int f = 0; f < kLead; ++f) ahead[f] = fragment[kSlots + f];
  }
  if (kHasNext) {
    WHET_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (__builtin_expect(mask_next, 0)) mask(w[g], next[g], problem, g, now_key0 + kKeys);
      move_references<false>(w[g], next[g]);
    }
  }
}

// The matrix phase of a ping-pong: scores of a half tile (where kHasScores) and the output of the one before it (where kHasOutput).
template <bool kHasScores, bool kHasOutput, bool kTail>
WHET_DEVICE void matrix_phase(Rows (&w)[kGroups], const Int8 (&ahead)[kLead], const Ones& ones,
                              Scores (&scores)[kGroups], const Packed (&weights)[kGroups],
                              const Problem& problem, const Places& keys, int key_half,
                              const Places& values, int value_half, int value_key0) {
  constexpr int kFirst = kHasScores ? 0 : kScoreSlots;
  constexpr int kEnd = kHasOutput ? kSlots : kScoreSlots;
  Int8 fragment[kSlots];
  const auto read = [&](int f) __attribute__((always_inline)) {
    if (f >= kEnd) return;
    fragment[f] = f < kScoreSlots ? read_keys(keys, f / kDepth + 2 * key_half, f % kDepth)
                                  : read_values(values, f - kScoreSlots, value_half);
  };
  WHET_UNROLL
  for (int f = 0; f < kLead; ++f) {
    if (kHasScores) {
      fragment[f] = ahead[f];
    } else {
      read(kScoreSlots + f);
    }
  }
  Int8 existing = {};
  if (kTail) existing = existing_bytes(static_cast<int>(kSeqKv) - value_key0, problem.half);
  whet::for_each<kFirst, kEnd>([&](auto constant) __attribute__((always_inline)) {
    constexpr int slot = decltype(constant)::kValue;
    read(slot + kLead);
    if constexpr (slot < kScoreSlots) {
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        multiply_scores<slot % kDepth>(scores[g].block[slot / kDepth], fragment[slot], w[g]);
      }
    } else {
      constexpr int column = slot - kScoreSlots;
      Int8 v = fragment[slot];
      if (kTail) v &= existing;
      WHET_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        multiply_output(w[g].output[column], v, weights[g].operand(), w[g]);
        if constexpr (column == 0) add_to_totals(w[g], weights[g].operand(), ones);
      }
    }
    whet::schedule_fence();
  });
}

// Its vector phase: the scores become weights.
template <bool kFirst>
WHET_DEVICE void vector_phase(Rows (&w)[kGroups], Scores (&scores)[kGroups],
                              Packed (&weights)[kGroups], const Problem& problem, int key0,
                              bool masked) {
  WHET_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    // Whether products behind the scores give them the time is not known: the next may be waiting outside of the pipe.
    whet::wait_matrix();
    WHET_UNROLL
    for (int i = 0; i < kFours; ++i) max_four(w[g], scores[g], i);
    if (__builtin_expect(masked, 0)) mask(w[g], scores[g], problem, g, key0);
    move_references<kFirst>(w[g], scores[g]);
    WHET_UNROLL
    for (int e = 0; e < kEights; ++e) round_eight(weights[g], w[g], scores[g], e);
  }
  settle();
}

}  // namespace
