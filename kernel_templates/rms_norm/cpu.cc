// RMSNorm on a CPU: a row is read twice, the second time from cache.
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_math.h"
#include "common/cpu_vec.h"

using Element = StorageOf<SHAPE_DTYPE>::Type;

constexpr int64_t kRows = SHAPE_ROWS;
constexpr int64_t kColumns = SHAPE_COLUMNS;
constexpr int64_t kWhole = kColumns / kLanes * kLanes;
constexpr int kRest = static_cast<int>(kColumns % kLanes);
// Enough additions in flight to hide the latency of one.
constexpr int kSums = 4;

// Adds x to the residual at `at`, rounds, writes it back, and returns what was stored.
WHET_CPU_FN VecF AddResidual(const Element* x, Element* residual, int64_t at, int count) {
  const VecF sum = LoadFirstAsF32(x + at, count) + LoadFirstAsF32(residual + at, count);
  StoreFromF32(residual + at, sum, count);
  return LoadFirstAsF32(residual + at, count);
}

WHET_CPU_FN VecF Input(const Element* x, Element* residual, int64_t at, int count) {
  if (SHAPE_RESIDUAL != 0) return AddResidual(x, residual, at, count);
  return LoadFirstAsF32(x + at, count);
}

WHET_CPU_FN float SumOfSquares(const Element* x, Element* residual) {
  VecF sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kLanes <= kWhole; i += kSums * kLanes) {
    WHET_CPU_UNROLL
    for (int s = 0; s < kSums; ++s) {
      const VecF h = Input(x, residual, i + s * kLanes, kLanes);
      sums[s] = FusedMultiplyAdd(h, h, sums[s]);
    }
  }
  for (; i < kWhole; i += kLanes) {
    const VecF h = Input(x, residual, i, kLanes);
    sums[0] = FusedMultiplyAdd(h, h, sums[0]);
  }
  if (kRest != 0) {
    const VecF h = Input(x, residual, kWhole, kRest);
    sums[1] = FusedMultiplyAdd(h, h, sums[1]);
  }
  return HorizontalSum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

WHET_CPU_FN void ScaleRow(const Element* h, const Element* weight, float factor, Element* y) {
  const VecF f = Broadcast(factor);
  for (int64_t i = 0; i < kWhole; i += kLanes) {
    StoreFromF32(y + i, LoadAsF32(h + i) * f * LoadAsF32(weight + i), kLanes);
  }
  if (kRest != 0) {
    const VecF scaled = LoadFirstAsF32(h + kWhole, kRest) * f;
    StoreFromF32(y + kWhole, scaled * LoadFirstAsF32(weight + kWhole, kRest), kRest);
  }
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  const Element* x = *static_cast<const Element* const*>(args[0]);
  Element* residual = *static_cast<Element* const*>(args[1]);
  const Element* weight = *static_cast<const Element* const*>(args[2]);
  Element* y = *static_cast<Element* const*>(args[3]);
  const float epsilon = *static_cast<const float*>(args[4]);
  const int64_t first = int64_t{block->index[0]} * TUNE_ROWS_PER_BLOCK;
  for (int64_t row = first; row < first + TUNE_ROWS_PER_BLOCK && row < kRows; ++row) {
    const Element* x_row = x + row * SHAPE_X_STRIDE;
    Element* residual_row = SHAPE_RESIDUAL != 0 ? residual + row * kColumns : nullptr;
    const float mean = SumOfSquares(x_row, residual_row) * (1.0f / static_cast<float>(kColumns));
    const float factor = 1.0f / SquareRoot(mean + epsilon);
    ScaleRow(SHAPE_RESIDUAL != 0 ? residual_row : x_row, weight, factor, y + row * kColumns);
  }
}
