// Quantisation to e4m3 on a CPU. A block takes a head (all heads when they share a scale), or some rows of one where nothing ties
// them together; loops over channels are left to the compiler's vectoriser.
#include "common/cpu_block.h"
#include "common/cpu_convert.h"
#include "common/cpu_fp8.h"

using Element = StorageOf<SHAPE_DTYPE>::Type;
using Format = Fp8Format<SHAPE_TO>;

constexpr int64_t kSeq = SHAPE_SEQ;
constexpr int kDim = SHAPE_DIM;
constexpr int kPitch = (kDim + 15) / 16 * 16;
constexpr int64_t kScaleRows = SHAPE_SCALE_ROWS > 0 ? SHAPE_SCALE_ROWS : (kSeq > 0 ? kSeq : 1);
constexpr int kGroup = 128;  // rows that are transformed together; a multiple of every scale_rows
constexpr float kSmallestScale = 0x1p-120f;
static_assert(kGroup * kPitch * 4 <= LAUNCH_SHARED_BYTES, "shared_bytes of cpu.json is too small");

struct Head {
  const Element* x;
  uint8_t* y;
  float* scale;
  float mean[kDim];
};

// One stage of the Hadamard transform: sums and differences of channels `stride` apart.
template <int kStride>
WHET_CPU_FN void Butterfly(float* row) {
  for (int base = 0; base < kDim; base += 2 * kStride) {
    for (int i = 0; i < kStride; ++i) {
      const float a = row[base + i];
      const float b = row[base + kStride + i];
      row[base + i] = a + b;
      row[base + kStride + i] = a - b;
    }
  }
}

// The rotation of docs/fp8.md: signs, Hadamard over the largest power of two in kDim, and for 192 a reflection over its three parts.
WHET_CPU_FN void Rotate(float* row) {
  for (int d = 0; d < kDim; ++d) {
    const bool negative = (static_cast<uint32_t>((d & ~24) + 1) * 0x9e3779b1u) >> 31 != 0u;
    row[d] = negative ? -row[d] : row[d];
  }
  Butterfly<1>(row);
  Butterfly<2>(row);
  Butterfly<4>(row);
  Butterfly<8>(row);
  Butterfly<16>(row);
  Butterfly<32>(row);
  if constexpr (kDim == 128 || kDim == 256) Butterfly<64>(row);
  if constexpr (kDim == 256) Butterfly<128>(row);
  constexpr float kNorm = kDim == 128 ? 0.08838834764831845f : (kDim == 256 ? 0.0625f : 0.125f);
  if constexpr (kDim == 192) {
    for (int i = 0; i < 64; ++i) {
      const float part = (row[i] + row[64 + i] + row[128 + i]) * (2.0f / 3.0f);
      row[i] -= part;
      row[64 + i] -= part;
      row[128 + i] -= part;
    }
  }
  for (int d = 0; d < kDim; ++d) row[d] *= kNorm;
}

WHET_CPU_FN void Transform(const Head& head, int64_t row, float* out) {
  const Element* x = head.x + row * SHAPE_X_STRIDE_S;
  for (int d = 0; d < kDim; ++d) out[d] = ToF32(x[d]) - (SHAPE_CENTER ? head.mean[d] : 0.0f);
  if constexpr (SHAPE_ROTATE != 0) Rotate(out);
}

// The largest finite magnitude of a row, or of `largest`.
WHET_CPU_FN float LargestOf(const float* row, float largest) {
  for (int d = 0; d < kDim; ++d) {
    const float magnitude = row[d] < 0.0f ? -row[d] : row[d];
    const float finite = magnitude < __builtin_inff() ? magnitude : 0.0f;
    largest = finite > largest ? finite : largest;
  }
  return largest;
}

// The scale before the multiplier is taken out of it.
WHET_CPU_FN float ScaleFor(float largest, float multiplier) {
  largest *= multiplier;
  if (!(largest > 0.0f)) return multiplier;  // so that it is written as 1
  float scale = largest / Format::kLargest;
  if constexpr (SHAPE_POWER_OF_TWO != 0) {
    // The least power of two 2^k with largest <= kLargest 2^k, on the bits: a mantissa above kLargest's carries.
    uint32_t bits;
    uint32_t limit;
    const float format_largest = Format::kLargest;
    __builtin_memcpy(&bits, &largest, sizeof(bits));
    __builtin_memcpy(&limit, &format_largest, sizeof(limit));
    const int32_t exponent =
        static_cast<int32_t>((bits + (0x7fffffu - (limit & 0x7fffffu))) >> 23) -
        static_cast<int32_t>(limit >> 23) + 127;
    bits = static_cast<uint32_t>(exponent < 7 ? 7 : exponent) << 23;
    __builtin_memcpy(&scale, &bits, sizeof(scale));
  }
  return scale > kSmallestScale ? scale : kSmallestScale;
}

WHET_CPU_FN void EncodeRow(float* row, float factor, uint8_t* out) {
  for (int d = 0; d < kDim; ++d) {
    const float value = row[d] * factor;
    // What is not finite becomes NaN, never the largest number.
    out[d] = Fp8FromF32<SHAPE_TO>(value - value == 0.0f ? value : __builtin_nanf(""));
  }
}

// Rows [first, last) of a head, `first` a multiple of kGroup. `given` is the scale of a head with one, else 0.
WHET_CPU_FN void Quantize(const Head& head, int64_t first, int64_t last, float given,
                          float multiplier, float* rows) {
  for (int64_t start = first; start < last; start += kGroup) {
    const int count = static_cast<int>(last - start < kGroup ? last - start : kGroup);
    for (int i = 0; i < count; ++i) Transform(head, start + i, rows + i * kPitch);
    for (int i = 0; i < count;) {
      float scale = given;
      int end = count;
      if (SHAPE_SCALE_ROWS != 0) {
        end = i + static_cast<int>(kScaleRows) < count ? i + static_cast<int>(kScaleRows) : count;
        float largest = 0.0f;
        for (int j = i; j < end; ++j) largest = LargestOf(rows + j * kPitch, largest);
        scale = ScaleFor(largest, multiplier);
        head.scale[(start + i) / kScaleRows] = scale / multiplier;
      }
      const float factor = multiplier / scale;
      for (; i < end; ++i) {
        if constexpr (SHAPE_TRANSPOSE != 0) {
          uint8_t bytes[kDim];
          EncodeRow(rows + i * kPitch, factor, bytes);
          for (int d = 0; d < kDim; ++d)
            head.y[d * int64_t{SHAPE_Y_STRIDE_R} + start + i] = bytes[d];
        } else {
          EncodeRow(rows + i * kPitch, factor, head.y + (start + i) * int64_t{SHAPE_Y_STRIDE_R});
        }
      }
    }
  }
}

// Adds rows [first, last) to the sums.
WHET_CPU_FN void AddRows(const Head& head, int64_t first, int64_t last, double* sum) {
  for (int64_t row = first; row < last; ++row) {
    const Element* x = head.x + row * SHAPE_X_STRIDE_S;
    for (int d = 0; d < kDim; ++d) sum[d] += static_cast<double>(ToF32(x[d]));
  }
}

WHET_CPU_FN void Mean(Head& head) {
  double sum[kDim] = {};
  int64_t count = kSeq;
  if constexpr (SHAPE_SAMPLED_MEAN != 0) {
    // 16 rows of every 256 (gpu/mean_rows.h says why there).
    count = 0;
    for (int64_t chunk = 0; 256 * chunk < kSeq; ++chunk) {
      int64_t first = 256 * chunk + int64_t{static_cast<uint32_t>(chunk) * 0x9e3779b1u >> 28} * 16;
      if (first >= kSeq) first = 256 * chunk;
      const int64_t last = first + 16 < kSeq ? first + 16 : kSeq;
      AddRows(head, first, last, sum);
      count += last - first;
    }
  } else {
    AddRows(head, 0, kSeq, sum);
  }
  const double rows = count > 0 ? static_cast<double>(count) : 1.0;
  for (int d = 0; d < kDim; ++d) {
    const float mean = static_cast<float>(sum[d] / rows);
    head.mean[d] = __builtin_isfinite(mean) ? mean : 0.0f;
  }
}

WHET_CPU_FN float LargestOfHead(const Head& head, float* rows) {
  float largest = 0.0f;
  for (int64_t row = 0; row < kSeq; ++row) {
    Transform(head, row, rows);
    largest = LargestOf(rows, largest);
  }
  return largest;
}

extern "C" void WHET_ENTRY(const WhetCpuBlock* block, void* const* args) {
  constexpr int64_t kHeads = int64_t{SHAPE_BATCH} * SHAPE_HEADS;
  const auto floats = [&](int i) { return *static_cast<float* const*>(args[i]); };
  const Element* x = *static_cast<const Element* const*>(args[0]);
  uint8_t* y = *static_cast<uint8_t* const*>(args[2]);
  const float multiplier = *static_cast<const float*>(args[7]);
  const float logit_scale = *static_cast<const float*>(args[8]);
  float* rows = static_cast<float*>(block->shared);
  const int64_t first_head = SHAPE_PER_TENSOR != 0 ? 0 : block->index[0];
  const int64_t end_head = SHAPE_PER_TENSOR != 0 ? kHeads : first_head + 1;
  const int64_t first = SHAPE_STATISTICS != 0 ? 0 : int64_t{block->index[1]} * TUNE_ROWS;
  const int64_t last = SHAPE_STATISTICS != 0 || first + TUNE_ROWS > kSeq ? kSeq : first + TUNE_ROWS;
  if (first_head >= kHeads) return;  // an empty problem has a grid of 1

  const auto open = [&](int64_t index, Head& head) {
    const int64_t b = index / SHAPE_HEADS;
    const int64_t h = index % SHAPE_HEADS;
    head.x = x + b * SHAPE_X_STRIDE_B + h * SHAPE_X_STRIDE_H;
    head.y = y + b * SHAPE_Y_STRIDE_B + h * SHAPE_Y_STRIDE_H;
    head.scale = floats(3) + index * SHAPE_SCALE_BLOCKS;
    if (SHAPE_CENTER == 1) Mean(head);
    if (SHAPE_CENTER == 2) __builtin_memcpy(head.mean, floats(1) + index * kDim, kDim * 4);
  };
  float shared_largest = 0.0f;
  for (int64_t index = first_head; SHAPE_PER_TENSOR != 0 && index < end_head; ++index) {
    Head head;
    open(index, head);
    const float largest = LargestOfHead(head, rows);
    shared_largest = largest > shared_largest ? largest : shared_largest;
  }
  for (int64_t index = first_head; index < end_head; ++index) {
    Head head;
    open(index, head);
    if (SHAPE_CENTER == 1) __builtin_memcpy(floats(4) + index * kDim, head.mean, kDim * 4);
    float scale = 0.0f;
    if (SHAPE_SCALE_ROWS == 0) {
      const float largest = SHAPE_PER_TENSOR != 0 ? shared_largest : LargestOfHead(head, rows);
      scale = ScaleFor(largest, multiplier);
      head.scale[0] = scale / multiplier;
    }
    if (SHAPE_SCALE_ROWS != 0 && kSeq == 0) head.scale[0] = 1.0f;
    if (SHAPE_LSE_SHIFT != 0) {
      const int64_t mean_head = index / SHAPE_HEADS * SHAPE_MEAN_HEADS +
                                index % SHAPE_HEADS / (SHAPE_HEADS / SHAPE_MEAN_HEADS);
      const float* mean = floats(1) + mean_head * kDim;
      for (int64_t row = first; row < last; ++row) {
        double dot = 0.0;
        for (int d = 0; d < kDim; ++d) {
          dot += static_cast<double>(ToF32(head.x[row * SHAPE_X_STRIDE_S + d])) *
                 static_cast<double>(mean[d]);
        }
        floats(5)[index * kSeq + row] = static_cast<float>(dot * static_cast<double>(logit_scale));
      }
    }
    Quantize(head, first, last, scale, multiplier, rows);
  }
}
