// RMSNorm for every GPU: y = x / sqrt(mean(x^2) + epsilon) * weight, a block per row. The row is read twice, the second time from
// the cache; with a residual, h = round(x + residual) is written back in the first pass and read again in the second.
#include "common/gpu.h"

namespace {

using whet::Int64;

constexpr int kThreads = TUNE_THREADS;
constexpr int kUnroll = TUNE_UNROLL;
constexpr int kWaves =
    kThreads / 32;  // groups of 32 lanes: the unit that a shuffle reaches on every GPU
constexpr Int64 kRows = SHAPE_ROWS;
constexpr Int64 kColumns = SHAPE_COLUMNS;

static_assert(kThreads % 64 == 0 && kThreads <= 1024,
              "threads must be a multiple of 64, at most 1024");
static_assert(kWaves * 4 <= LAUNCH_SHARED_BYTES, "shared_bytes of the kernel file is too small");

typedef whet::Element<SHAPE_DTYPE> Element;
typedef Element::Stored Stored;

// The sum over the block, the same in every thread.
WHET_DEVICE float block_sum(float x, float* partial) {
  x += whet::shuffle_xor<1>(x);
  x += whet::shuffle_xor<2>(x);
  x += whet::shuffle_xor<4>(x);
  x += whet::shuffle_xor<8>(x);
  x += whet::shuffle_xor<16>(x);
  const int thread = static_cast<int>(whet::thread_index());
  whet::barrier();  // the readers of the row before are done
  if (thread % 32 == 0) partial[thread / 32] = x;
  whet::barrier();
  float sum = 0.0f;
  for (int i = 0; i < kWaves; ++i) sum += partial[i];
  return sum;
}

}  // namespace

extern "C" __global__ void WHET_BOUNDS(TUNE_THREADS)
    WHET_ENTRY(const Stored* __restrict__ x, Stored* __restrict__ residual,
               const Stored* __restrict__ weight, Stored* __restrict__ y, float epsilon) {
  WHET_SHARED_MEMORY(shared);
  float* const partial = reinterpret_cast<float*>(shared);
  const Int64 first = static_cast<Int64>(whet::thread_index()) * kUnroll;
  // The grid is capped, so a block may have several rows.
  const Int64 blocks = kRows < 1048576 ? kRows : 1048576;
  for (Int64 row = whet::block_index(); row < kRows; row += blocks) {
    const Stored* const in = x + row * SHAPE_X_STRIDE;
    Stored* const kept = residual + row * kColumns;
    Stored* const out = y + row * kColumns;
    float squares = 0.0f;
    for (Int64 column = first; column < kColumns; column += kThreads * kUnroll) {
#pragma unroll
      for (int e = 0; e < kUnroll; ++e) {
        if (column + e >= kColumns) break;
        float h = Element::load(in + column + e);
        if (SHAPE_RESIDUAL) {
          Stored rounded;
          Element::store(&rounded, h + Element::load(kept + column + e));
          kept[column + e] = rounded;
          h = Element::load(&rounded);
        }
        squares += h * h;
      }
    }
    const float mean = block_sum(squares, partial) / static_cast<float>(kColumns);
    const float factor = 1.0f / whet::square_root(mean + epsilon);
    const Stored* const source = SHAPE_RESIDUAL ? kept : in;
    for (Int64 column = first; column < kColumns; column += kThreads * kUnroll) {
#pragma unroll
      for (int e = 0; e < kUnroll; ++e) {
        if (column + e >= kColumns) break;
        Element::store(out + column + e, Element::load(source + column + e) * factor *
                                             Element::load(weight + column + e));
      }
    }
  }
}
