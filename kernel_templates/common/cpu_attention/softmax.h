// One step of the online softmax over a tile of scores, in base 2.
#ifndef WHET_CPU_ATTENTION_SOFTMAX_H_
#define WHET_CPU_ATTENTION_SOFTMAX_H_

#include "common/cpu_attention/products.h"
#include "common/cpu_attention/shape.h"
#include "common/cpu_math.h"
#include "common/cpu_vec.h"

// What is kept of one row between tiles: `top` is the largest score so far times the factor (-inf
// before the first), `sum` the lanes' sums of 2^(score * factor - top).
struct RowState {
  float* top;
  float* sum;
};

WHET_CPU_FN VecF MinusInfinity() { return Broadcast(-__builtin_inff()); }

// Turns the first `count` scores of a row into weights 2^(score * factor - top), and returns what the
// sums made with the old top are to be multiplied with. Weights of 0 follow up to `padded`. Scores
// behind `count` may hold anything. A NaN makes the row's sum NaN, and with it the row's output.
WHET_CPU_FN float SoftmaxRow(float* scores, int count, int padded, float factor, RowState state) {
  const int whole = count / kLanes;
  const int rest = count % kLanes;
  VecF largest = MinusInfinity();
  VecF largest_odd = MinusInfinity();
  int i = 0;
  for (; i + 2 <= whole; i += 2) {
    largest = MaxVec(largest, LoadVec(scores + i * kLanes));
    largest_odd = MaxVec(largest_odd, LoadVec(scores + (i + 1) * kLanes));
  }
  if (i < whole) largest = MaxVec(largest, LoadVec(scores + i * kLanes));
  if (rest != 0) {
    const VecF last = LoadVec(scores + whole * kLanes);
    largest_odd = MaxVec(largest_odd, KeepFirst(last, rest, MinusInfinity()));
  }
  const float tile_top = HorizontalMax(MaxVec(largest, largest_odd)) * factor;
  const float old_top = *state.top;
  const float new_top = old_top > tile_top ? old_top : tile_top;
  // While all scores are -inf any finite number does: the weights are 0.
  const float base = new_top == -__builtin_inff() ? 0.0f : new_top;
  *state.top = new_top;

  const VecF scale = Broadcast(factor);
  const VecF minus_base = Broadcast(-base);
  VecF sum = ZeroVec();
  for (int v = 0; v < whole; ++v) {
    const VecF weights = Exp2(FusedMultiplyAdd(LoadVec(scores + v * kLanes), scale, minus_base));
    sum = sum + weights;
    StoreWeights(scores, v, weights);
  }
  if (rest != 0) {
    const VecF last = LoadVec(scores + whole * kLanes);
    const VecF weights =
        KeepFirst(Exp2(FusedMultiplyAdd(last, scale, minus_base)), rest, ZeroVec());
    sum = sum + weights;
    StoreWeights(scores, whole, weights);
  }
  for (int v = (count + kLanes - 1) / kLanes; v < padded / kLanes; ++v) {
    StoreWeights(scores, v, ZeroVec());
  }
  const VecF correction = Exp2(Broadcast(old_top - base));
  StoreVec(state.sum, FusedMultiplyAdd(LoadVec(state.sum), correction, sum));
  return correction[0];
}

#endif  // WHET_CPU_ATTENTION_SOFTMAX_H_
