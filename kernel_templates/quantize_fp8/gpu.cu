// Quantisation to e4m3 on every GPU, in one pass over memory as far as its caches reach.
//
// Work is cut into items that blocks claim in order. A head goes through up to three phases: statistics (each channel's sum, least
// and largest: the mean, and without rotation the largest centred magnitude), the largest rotated magnitude (only when a rotated
// head has one scale), and the bytes. The order runs a few heads ahead with the earlier phases, so that nobody waits for long and a
// head is still in the cache when it is read again. A waiting item depends on items that were claimed before it, so the launch ends
// however few blocks run at a time. Without statistics there is one item for each block, and nothing to wait for.
#include "quantize_fp8/gpu/rows.h"
#include "quantize_fp8/gpu/sync.h"

namespace {

using whet::Int64;
using whet::kDim;
using whet::kPieces;
using whet::kPiecesPerLane;
using whet::kVectorStores;

typedef whet::Source Source;
typedef Source::Stored Stored;

constexpr int kThreads = TUNE_THREADS;
constexpr int kRows = kThreads / 4;  // of a tile
constexpr Int64 kSeq = SHAPE_SEQ;
constexpr Int64 kHeads = static_cast<Int64>(SHAPE_BATCH) * SHAPE_HEADS;
constexpr Int64 kTiles = (kSeq + kRows - 1) / kRows;
constexpr int kChunkRows = 256;
constexpr Int64 kChunks = SHAPE_STATISTICS_CHUNKS;
constexpr bool kStatistics = SHAPE_STATISTICS != 0;
constexpr bool kRotatedLargest = SHAPE_ROTATE && SHAPE_SCALE_ROWS == 0;
constexpr bool kSums = SHAPE_CENTER == 1;
constexpr bool kBounds = SHAPE_SCALE_ROWS == 0 && !SHAPE_ROTATE;
constexpr bool kChannels = kSums || kBounds;  // there is a first phase

// Slots of a round, and how many rounds a phase follows the one before: as many items as run at a time lie between them.
constexpr Int64 kStatisticsItems = kChannels ? kChunks : 0;
constexpr Int64 kLargestItems = kRotatedLargest ? kTiles : 0;
constexpr Int64 kRoundItems = kStatisticsItems + kLargestItems + kTiles;
constexpr Int64 kRunning = 1280;
constexpr Int64 kLag = kRunning / (kRoundItems > 0 ? kRoundItems : 1) + 1;
constexpr Int64 kRounds = kHeads + kLag * ((kStatisticsItems > 0) + (kLargestItems > 0));

// Words of the workspace.
constexpr int kClaimed = 0, kFinished = 1, kTensorLargest = 2, kTensorDone = 3;
constexpr int kHeadWords = 8;       // where the heads' words begin, four each:
constexpr int kStatisticsDone = 0;  // chunks whose sums and bounds are in the workspace
constexpr int kReady = 1;        // 1 when the mean, and the largest magnitude by bounds, are known
constexpr int kLargest = 2;      // bits of the largest magnitude
constexpr int kLargestDone = 3;  // tiles that are in it
constexpr Int64 kPartials = kHeadWords + 4 * kHeads;
constexpr Int64 kPartialWords = 3 * kDim;  // of a chunk: sums, least, largest

constexpr int kTilePitch =
    kRows + 4;  // of a transposed tile, in bytes: spreads a wave's bytes over the banks
static_assert(1536 + kThreads * 32 <= LAUNCH_SHARED_BYTES &&
                  (!SHAPE_TRANSPOSE || 1536 + kDim * kTilePitch <= LAUNCH_SHARED_BYTES),
              "shared_bytes of gpu.json is too small");
static_assert(SHAPE_SCALE_ROWS <= kRows, "a tile must hold the rows that share a scale");

struct Arguments {
  const Stored* x;
  const float* mean_in;
  unsigned char* y;
  float* scale;
  float* mean;
  float* lse_shift;
  int* workspace;
  float multiplier;
  float logit_scale;
};

// Shared memory: what all threads look at, then room for a tile or for partial sums.
struct Shared {
  float* channel;  // kDim: the head's mean, or the mean for lse_shift
  float* part;     // one for each 32 threads
  int* word;       // two: claimed items, in turn
  float* partial;  // kThreads * 8
  unsigned char* tile;
};

WHET_DEVICE int thread() { return static_cast<int>(whet::thread_index()); }

WHET_DEVICE int* head_word(const Arguments& a, Int64 head, int word) {
  return a.workspace + kHeadWords + 4 * head + word;
}

WHET_DEVICE const Stored* head_rows(const Arguments& a, Int64 head) {
  return a.x + head / SHAPE_HEADS * SHAPE_X_STRIDE_B + head % SHAPE_HEADS * SHAPE_X_STRIDE_H;
}

// The largest over groups of kGroup threads, the same in all of them. All threads take part.
template <int kGroup>
WHET_DEVICE float group_max(float x, float* part) {
  x = whet::max_float(x, whet::shuffle_xor<1>(x));
  x = whet::max_float(x, whet::shuffle_xor<2>(x));
  x = whet::max_float(x, whet::shuffle_xor<4>(x));
  x = whet::max_float(x, whet::shuffle_xor<8>(x));
  x = whet::max_float(x, whet::shuffle_xor<16>(x));
  whet::barrier();  // the readers of the one before are done
  if (thread() % 32 == 0) part[thread() / 32] = x;
  whet::barrier();
  const int first = thread() / kGroup * (kGroup / 32);
  x = part[first];
  for (int i = 1; i < kGroup / 32; ++i) x = whet::max_float(x, part[first + i]);
  return x;
}

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
      mean = static_cast<float>(sum / static_cast<double>(kSeq > 0 ? kSeq : 1));
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
  const Int64 first = chunk * kChunkRows;
  const int rows = static_cast<int>(kSeq - first < kChunkRows ? kSeq - first : kChunkRows);
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
        if (kSums) sum[e] += value[e];
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

WHET_DEVICE void wait_for(int* word, int value) {
  if (thread() == 0) {
    while (whet::seen(word) < value) whet::rest();
  }
  whet::barrier();
}

// Asks for a thread's row of a tile.
WHET_DEVICE void load_raw(const Arguments& a, Int64 head, Int64 tile, whet::Raw& out) {
  const Int64 row = tile * kRows + thread() / 4;
  const bool inside = row < kSeq;
  out.load(head_rows(a, head) + (inside ? row : 0) * SHAPE_X_STRIDE_S, thread() % 4, inside);
}

// A thread's row of a tile, centred and rotated but for the norm. Rows behind the last are zeros.
WHET_DEVICE void open_row(const Arguments& a, const Shared& s, Int64 head, Int64 row, int lane,
                          const whet::Raw& raw, whet::Row& out) {
  const bool inside = row < kSeq;
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out.value[i][e] = raw.value(i, e);
  }
  if (SHAPE_LSE_SHIFT) {
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int d = 32 * i + 8 * lane + e;
        if (kDim % 32 == 0 || d < kDim) dot += out.value[i][e] * s.channel[d];
      }
    }
    dot += whet::shuffle_xor<1>(dot);
    dot += whet::shuffle_xor<2>(dot);
    if (lane == 0 && inside) a.lse_shift[head * kSeq + row] = dot * a.logit_scale;
  }
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int d = 32 * i + 8 * lane + e;
      if (SHAPE_CENTER && (kDim % 32 == 0 || d < kDim)) out.value[i][e] -= s.channel[d];
    }
  }
  // Centring makes something of nothing: rows behind the last must not count in a largest magnitude.
  if (SHAPE_CENTER && kSeq % kRows != 0 && !inside) {
#pragma unroll
    for (int i = 0; i < kPiecesPerLane; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) out.value[i][e] = 0.0f;
    }
  }
  if (SHAPE_ROTATE) out.rotate(lane);
}

// The channels' numbers that open_row looks at.
WHET_DEVICE void load_channels(const Arguments& a, const Shared& s, Int64 head) {
  if (!SHAPE_CENTER && !SHAPE_LSE_SHIFT) return;
  const float* from = a.mean_in;
  if (SHAPE_CENTER == 1) {
    from = a.mean + head * kDim;
  } else if (SHAPE_CENTER == 2) {
    from += head * kDim;
  } else {
    from += (head / SHAPE_HEADS * SHAPE_MEAN_HEADS +
             head % SHAPE_HEADS / (SHAPE_HEADS / SHAPE_MEAN_HEADS)) *
            kDim;
  }
  whet::barrier();
  for (int d = thread(); d < kDim; d += kThreads) {
    s.channel[d] = SHAPE_CENTER == 1 ? *const_cast<const volatile float*>(from + d) : from[d];
  }
  whet::barrier();
}

WHET_DEVICE void take_largest(const Arguments& a, const Shared& s, Int64 head, Int64 tile,
                              const whet::Raw& raw) {
  if (SHAPE_CENTER == 1) wait_for(head_word(a, head, kReady), 1);
  load_channels(a, s, head);
  whet::Row row;
  open_row(a, s, head, tile * kRows + thread() / 4, thread() % 4, raw, row);
  const float largest = group_max<kThreads>(row.largest() * whet::Row::kNorm, s.part);
  if (thread() != 0) return;
  const int bits = static_cast<int>(whet::float_bits(largest));
  whet::raise_to(SHAPE_PER_TENSOR ? a.workspace + kTensorLargest : head_word(a, head, kLargest),
                 bits);
  whet::publish();
  whet::add(SHAPE_PER_TENSOR ? a.workspace + kTensorDone : head_word(a, head, kLargestDone), 1);
}

WHET_DEVICE void store_tile(const Arguments& a, const Shared& s, Int64 head, Int64 first) {
  unsigned char* const to =
      a.y + head / SHAPE_HEADS * SHAPE_Y_STRIDE_B + head % SHAPE_HEADS * SHAPE_Y_STRIDE_H + first;
  constexpr int kPiecesOfChannel = kRows / 16;
  for (int i = thread(); i < kDim * kPiecesOfChannel; i += kThreads) {
    const int d = i / kPiecesOfChannel;
    const int row = i % kPiecesOfChannel * 16;
    const unsigned char* const from = s.tile + d * kTilePitch + row;
    unsigned char* const at = to + d * static_cast<Int64>(SHAPE_Y_STRIDE_R) + row;
    if (kVectorStores && first + row + 16 <= kSeq) {
      whet::Words4 words;
      for (int w = 0; w < 4; ++w) words.word[w] = reinterpret_cast<const unsigned*>(from)[w];
      *reinterpret_cast<whet::Words4*>(at) = words;
    } else {
      for (int b = 0; b < 16 && first + row + b < kSeq; ++b) at[b] = from[b];
    }
  }
}

WHET_DEVICE void write_bytes(const Arguments& a, const Shared& s, Int64 head, Int64 tile,
                             const whet::Raw& raw) {
  if (SHAPE_PER_TENSOR) {
    wait_for(a.workspace + kTensorDone,
             static_cast<int>(kRotatedLargest ? kHeads * kTiles : kHeads));
  } else if (kRotatedLargest) {
    wait_for(head_word(a, head, kLargestDone), static_cast<int>(kTiles));
  }
  if (kChannels && !SHAPE_PER_TENSOR) wait_for(head_word(a, head, kReady), 1);
  load_channels(a, s, head);
  const Int64 first = tile * kRows;
  const int row_in_tile = thread() / 4, lane = thread() % 4;
  const Int64 row_index = first + row_in_tile;
  whet::Row row;
  open_row(a, s, head, row_index, lane, raw, row);
  const float norm = SHAPE_ROTATE ? whet::Row::kNorm : 1.0f;
  float largest = row.largest() * norm;
  if (SHAPE_SCALE_ROWS != 0) {
    largest =
        group_max < SHAPE_SCALE_ROWS == 0 ? kThreads : SHAPE_SCALE_ROWS * 4 > (largest, s.part);
  } else {
    int* const word =
        SHAPE_PER_TENSOR ? a.workspace + kTensorLargest : head_word(a, head, kLargest);
    largest = whet::float_from_bits(static_cast<unsigned>(*static_cast<volatile int*>(word)));
  }
  const float scale = whet::scale_for(largest * a.multiplier, a.multiplier);
  const Int64 block =
      SHAPE_SCALE_ROWS == 0 ? 0 : row_index / (SHAPE_SCALE_ROWS + !SHAPE_SCALE_ROWS);
  const bool first_of_block = SHAPE_SCALE_ROWS == 0
                                  ? thread() == 0 && tile == 0
                                  : thread() % (SHAPE_SCALE_ROWS * 4 + !SHAPE_SCALE_ROWS) == 0;
  if (first_of_block && row_index < kSeq) {
    a.scale[head * SHAPE_SCALE_BLOCKS + block] = scale / a.multiplier;
  }
  const float factor = norm * (a.multiplier / scale);
  if (SHAPE_TRANSPOSE) whet::barrier();  // the tile of the item before is stored
  unsigned char* const to = a.y + head / SHAPE_HEADS * SHAPE_Y_STRIDE_B +
                            head % SHAPE_HEADS * SHAPE_Y_STRIDE_H + row_index * SHAPE_Y_STRIDE_R;
#pragma unroll
  for (int i = 0; i < kPiecesPerLane; ++i) {
    const int channel = 32 * i + 8 * lane;
    const float* const v = row.value[i];
    whet::Words2 bytes;
    bytes.word[0] = whet::encode4(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor);
    bytes.word[1] = whet::encode4(v[4] * factor, v[5] * factor, v[6] * factor, v[7] * factor);
    if (SHAPE_TRANSPOSE) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (kDim % 32 != 0 && channel + e >= kDim) break;
        s.tile[(channel + e) * kTilePitch + row_in_tile] =
            static_cast<unsigned char>(bytes.word[e / 4] >> (e % 4 * 8));
      }
    } else if (row_index < kSeq) {
      if (kVectorStores) {
        if (kPieces % 4 == 0 || channel < kDim) {
          *reinterpret_cast<whet::Words2*>(to + channel) = bytes;
        }
      } else {
        for (int e = 0; e < 8 && channel + e < kDim; ++e) {
          to[channel + e] = static_cast<unsigned char>(bytes.word[e / 4] >> (e % 4 * 8));
        }
      }
    }
  }
  if (SHAPE_TRANSPOSE) {
    whet::barrier();
    store_tile(a, s, head, first);
  }
}

// One slot of the order that the head of this file tells of.
struct Item {
  int phase;  // 0: statistics, 1: the largest magnitude, 2: bytes; 3: nothing to do
  Int64 head;
  Int64 part;  // chunk or tile
};

WHET_DEVICE Item item_at(Int64 index) {
  if (!kStatistics) {
    const bool some = index < kHeads * kTiles;
    return {some ? 2 : 3, index / (kTiles > 0 ? kTiles : 1), index % (kTiles > 0 ? kTiles : 1)};
  }
  Item item = {0, index / kRoundItems, index % kRoundItems};
  if (item.part >= kStatisticsItems) {
    item.part -= kStatisticsItems;
    item.phase = 1;
    if (kStatisticsItems > 0) item.head -= kLag;
    if (item.part >= kLargestItems) {
      item.part -= kLargestItems;
      item.phase = 2;
      if (kLargestItems > 0) item.head -= kLag;
    }
  }
  if (item.head < 0 || item.head >= kHeads || index >= kRounds * kRoundItems) item.phase = 3;
  return item;
}

WHET_DEVICE void load_item(const Arguments& a, const Item& item, whet::Raw& raw) {
  if (item.phase == 1 || item.phase == 2) load_raw(a, item.head, item.part, raw);
}

WHET_DEVICE void take_item(const Arguments& a, const Shared& s, const Item& item,
                           const whet::Raw& raw) {
  if (kChannels && item.phase == 0) take_statistics(a, s, item.head, item.part);
  if (kRotatedLargest && item.phase == 1) take_largest(a, s, item.head, item.part, raw);
  if (item.phase == 2) write_bytes(a, s, item.head, item.part, raw);
}

}  // namespace

// Blocks of a multiprocessor, as many as gpu.json launches for each: enough to hide memory's latency, with registers for two rows.
#if WHET_PLATFORM_CUDA
#define WHET_QUANTIZE_BOUNDS \
  __launch_bounds__(TUNE_THREADS, (SHAPE_DIM <= 128 ? 768 : 512) / TUNE_THREADS)
#else
#define WHET_QUANTIZE_BOUNDS WHET_BOUNDS(TUNE_THREADS)
#endif

extern "C" __global__ void WHET_QUANTIZE_BOUNDS WHET_ENTRY(
    const Stored* __restrict__ x, const float* __restrict__ mean_in, unsigned char* y, float* scale,
    float* mean, float* lse_shift, int* workspace, float multiplier, float logit_scale) {
  WHET_SHARED_MEMORY(memory);
  const Shared s = {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + 1024),
                    reinterpret_cast<int*>(memory + 1152), reinterpret_cast<float*>(memory + 1536),
                    memory + 1536};
  const Arguments a = {x, mean_in, y, scale, mean, lse_shift, workspace, multiplier, logit_scale};
  if (kHeads == 0) return;
  if (kSeq == 0) {
    // No rows: scales of 1 and means of 0.
    if (whet::block_index() != 0) return;
    for (Int64 i = thread(); i < kHeads * SHAPE_SCALE_BLOCKS; i += kThreads) scale[i] = 1.0f;
    if (SHAPE_CENTER == 1) {
      for (Int64 i = thread(); i < kHeads * kDim; i += kThreads) mean[i] = 0.0f;
    }
    return;
  }
  // A tile is asked for while the one before is worked on, and an item is claimed two ahead, so that the answer is there in time.
  constexpr Int64 kItems = kStatistics ? kRounds * kRoundItems : kHeads * kTiles;
  static_assert(!kStatistics || kItems < 2147000000, "claimed items are counted in an int");
  const Int64 blocks = whet::block_count();
  Int64 index = whet::block_index(), next = index + blocks;
  if (kStatistics) {
    if (thread() == 0) {
      s.word[0] = whet::add(workspace + kClaimed, 1);
      s.word[1] = whet::add(workspace + kClaimed, 1);
    }
    whet::barrier();
    index = s.word[0];
    next = s.word[1];
    whet::barrier();  // before a word is written again
  }
  Item item = item_at(index);
  whet::Raw raw;
  load_item(a, item, raw);
  for (int turn = 0; index < kItems; turn = 1 - turn) {
    if (kStatistics && thread() == 0) s.word[turn] = whet::add(workspace + kClaimed, 1);
    const Item item_next = item_at(next);
    whet::Raw raw_next;
    load_item(a, item_next, raw_next);
    take_item(a, s, item, raw);
    if (kStatistics) whet::barrier();
    index = next;
    next = kStatistics ? s.word[turn] : next + blocks;
    item = item_next;
    raw = raw_next;
  }
  if (!kStatistics) return;
  // The last block to leave puts the zeros back.
  whet::barrier();
  if (thread() == 0) {
    whet::publish();
    s.word[0] = whet::add(workspace + kFinished, 1);
  }
  whet::barrier();
  if (s.word[0] != static_cast<int>(blocks) - 1) return;
  for (Int64 i = thread(); i < kPartials; i += kThreads) workspace[i] = 0;
}
