// The first phase of a head: each channel's sum, least and largest; the mean, and without rotation the largest centred magnitude.
#pragma once

#include "quantize_fp8/gpu/mean_rows.h"
#include "quantize_fp8/gpu/plan.h"

namespace {

// Sums eight channels of each thread over the threads that have the same piece; result in `to` for channel < kDim.
template <class Combine>
WHET_DEVICE void combine_groups(const float (&mine)[8], float* partial, int* to, Combine combine) {
  constexpr int kGroups = kThreads / kPieces;
  whet::barrier();
  if (thread() < kGroups * kPieces) {
    for (int e = 0; e < 8; ++e) partial[thread() * 8 + e] = mine[e];
  }
  whet::barrier();
  for (int d = thread(); d < kDim; d += kThreads) {
    float all = partial[d];
    for (int g = 1; g < kGroups; ++g) all = combine(all, partial[g * kPieces * 8 + d]);
    to[d] = static_cast<int>(whet::float_bits(all));
  }
}

// Makes the head's mean and largest magnitude of what its chunks left, and puts the zeros back. Threads share the chunks of a
// channel, and read many at a time: the head's next phase waits for this.
WHET_DEVICE void finish_statistics(const Arguments& a, const Shared& s, Int64 head) {
  constexpr int kGroups = kThreads / kDim;
  constexpr int kAtOnce = 8;
  int* const chunks = a.workspace + kPartials + head * kChunks * kPartialWords;
  const int channel = thread() % kDim, group = thread() / kDim;
  double sum = 0.0;
  float least = whet::infinity(), most = -whet::infinity();
  if (group < kGroups) {
    for (Int64 first = group; first < kChunks; first += kGroups * kAtOnce) {
      int word[3][kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const Int64 c = first + i * kGroups;
        const int* const at = chunks + (c < kChunks ? c : 0) * kPartialWords + channel;
        if (kSums) word[0][i] = c < kChunks ? at[0] : 0;
        if (kBounds) word[1][i] = at[kDim];
        if (kBounds) word[2][i] = at[2 * kDim];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (kSums) {
          sum += static_cast<double>(whet::float_from_bits(static_cast<unsigned>(word[0][i])));
        }
        if (kBounds) {
          const float low = whet::float_from_bits(static_cast<unsigned>(word[1][i]));
          const float high = whet::float_from_bits(static_cast<unsigned>(word[2][i]));
          least = low < least ? low : least;
          most = high > most ? high : most;
        }
      }
    }
  }
  whet::barrier();
  // Room for a double and two floats of each thread.
  double* const sums = reinterpret_cast<double*>(s.partial);
  float* const bounds = s.partial + 2 * kThreads;
  if (group < kGroups) {
    sums[thread()] = sum;
    bounds[thread()] = least;
    bounds[kThreads + thread()] = most;
  }
  for (Int64 i = thread(); i < kChunks * kPartialWords; i += kThreads) chunks[i] = 0;
  whet::barrier();
  float largest = 0.0f;
  if (group == 0) {
    for (int g = 1; g < kGroups; ++g) {
      const int other = g * kDim + channel;
      sum += sums[other];
      least = bounds[other] < least ? bounds[other] : least;
      most = bounds[kThreads + other] > most ? bounds[kThreads + other] : most;
    }
    float mean = 0.0f;
    if (SHAPE_CENTER == 1) {
      constexpr Int64 kMeanRows = whet::mean_rows(kSeq);
      mean = static_cast<float>(sum / static_cast<double>(kMeanRows > 0 ? kMeanRows : 1));
      if (!(whet::magnitude(mean) < whet::infinity())) mean = 0.0f;
      a.mean[head * kDim + channel] = mean;
    }
    if (SHAPE_CENTER == 2) mean = a.mean_in[head * kDim + channel];
    if (kBounds && least <= most) {
      const float above = most - mean, below = mean - least;
      const float either = above > below ? above : below;
      if (either < whet::infinity()) largest = either;
    }
  }
  if (kBounds) {
    largest = group_max<kThreads>(largest, s.part);
    if (thread() == 0) {
      *head_word(a, head, kLargest) = static_cast<int>(whet::float_bits(largest));
      if (SHAPE_PER_TENSOR) {
        whet::raise_to(a.workspace + kTensorLargest, static_cast<int>(whet::float_bits(largest)));
      }
    }
  }
  whet::barrier();
  if (thread() == 0) {
    whet::publish();
    if (SHAPE_PER_TENSOR && kBounds) whet::add(a.workspace + kTensorDone, 1);
    whet::add(head_word(a, head, kReady), 1);
  }
}

// The bounds again, of finite elements alone. A NaN has lost against numbers before, an infinity has not.
WHET_DEVICE void bound_finite(const Stored* from, int rows, int channel, float (&least)[8],
                              float (&most)[8]) {
  for (int e = 0; e < 8; ++e) {
    least[e] = whet::infinity();
    most[e] = -whet::infinity();
  }
  for (int row = thread() / kPieces; row < rows; row += kThreads / kPieces) {
    float value[8];
    whet::load_piece(from + row * static_cast<Int64>(SHAPE_X_STRIDE_S), channel, value);
    for (int e = 0; e < 8; ++e) {
      if (!(whet::magnitude(value[e]) < whet::infinity())) continue;
      least[e] = whet::min_float(least[e], value[e]);
      most[e] = whet::max_float(most[e], value[e]);
    }
  }
}

WHET_DEVICE void take_statistics(const Arguments& a, const Shared& s, Int64 head, Int64 chunk) {
  constexpr int kGroups = kThreads / kPieces;
  constexpr bool kRunOnly = SHAPE_SAMPLED_MEAN && !kBounds;  // no other row matters here
  constexpr int kMostRows = kRunOnly ? whet::kMeanRunRows : kChunkRows;
  const Int64 run = whet::first_mean_row(chunk, kSeq);
  const Int64 first = kRunOnly ? run : chunk * kChunkRows;
  const int rows = static_cast<int>(kSeq - first < kMostRows ? kSeq - first : kMostRows);
  const int channel = thread() % kPieces * 8;
  const Stored* const from = head_rows(a, head) + first * SHAPE_X_STRIDE_S;
  float sum[8], least[8], most[8];
  for (int e = 0; e < 8; ++e) {
    sum[e] = 0.0f;
    least[e] = whet::infinity();
    most[e] = -whet::infinity();
  }
  if (thread() < kGroups * kPieces) {
#pragma unroll 4
    for (int row = thread() / kPieces; row < rows; row += kGroups) {
      float value[8];
      whet::load_piece(from + row * static_cast<Int64>(SHAPE_X_STRIDE_S), channel, value);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (kSums && (!SHAPE_SAMPLED_MEAN || kRunOnly ||
                      static_cast<unsigned>(first + row - run) < whet::kMeanRunRows)) {
          sum[e] += value[e];
        }
        if (kBounds) least[e] = whet::min_float(least[e], value[e]);
        if (kBounds) most[e] = whet::max_float(most[e], value[e]);
      }
    }
    bool infinite = false;
    for (int e = 0; e < 8; ++e) {
      infinite = infinite || most[e] == whet::infinity() || least[e] == -whet::infinity();
    }
    if (kBounds && infinite) bound_finite(from, rows, channel, least, most);
  }
  int* const to = a.workspace + kPartials + (head * kChunks + chunk) * kPartialWords;
  if (kSums) combine_groups(sum, s.partial, to, [](float x, float y) { return x + y; });
  if (kBounds) {
    combine_groups(least, s.partial, to + kDim, [](float x, float y) { return x < y ? x : y; });
    combine_groups(most, s.partial, to + 2 * kDim, [](float x, float y) { return x > y ? x : y; });
  }
  whet::barrier();
  if (thread() == 0) {
    whet::publish();
    s.part[0] = whet::add(head_word(a, head, kStatisticsDone), 1) == kChunks - 1 ? 1.0f : 0.0f;
  }
  whet::barrier();
  if (s.part[0] == 0.0f) return;
  if (thread() == 0) whet::seen(head_word(a, head, kStatisticsDone));
  whet::barrier();
  finish_statistics(a, s, head);
}

}  // namespace
