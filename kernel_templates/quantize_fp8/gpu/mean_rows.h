// Which rows a mean is taken over: all, or with SHAPE_SAMPLED_MEAN 16 of every 256, in a row, at places that a hash scatters. Places
// in step with each other would be in step with the rotation of some channel of rotary embeddings, and take its mean for what it is not.
#pragma once

#include "common/gpu.h"

namespace whet {

constexpr int kMeanChunkRows = 256;
constexpr int kMeanRunRows = 16;

// The first of a chunk's rows that count.
WHET_DEVICE constexpr Int64 first_mean_row(Int64 chunk, Int64 rows) {
  const Int64 first = chunk * kMeanChunkRows;
  const Int64 run = first + (static_cast<unsigned>(chunk) * 0x9e3779b1u >> 28) * kMeanRunRows;
  return run < rows ? run : first;
}

// How many rows of `rows` count.
WHET_DEVICE constexpr Int64 mean_rows(Int64 rows) {
  if (!SHAPE_SAMPLED_MEAN) return rows;
  const Int64 last = (rows + kMeanChunkRows - 1) / kMeanChunkRows - 1;
  if (last < 0) return 0;
  const Int64 left = rows - first_mean_row(last, rows);
  return last * kMeanRunRows + (left < kMeanRunRows ? left : kMeanRunRows);
}

}  // namespace whet
