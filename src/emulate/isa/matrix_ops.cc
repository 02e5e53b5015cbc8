// Matrix instructions: D = A B + C for 16 or 32 rows and columns. Sums are taken in double precision and rounded once; the order and
// width of the hardware's own sums are not documented.
#include <array>
#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"
#include "src/emulate/number_formats.h"

namespace whet::isa {
namespace {

using emulator::DecodeFloat;
using emulator::NumberFormat;

constexpr float kSmallestNormal = 1.17549435e-38f;

struct Shape {
  int rows = 0;
  int depth = 0;
  NumberFormat a = NumberFormat::kBf16;
  NumberFormat b = NumberFormat::kBf16;
  bool scaled = false;
  bool sparse = false;
};

// "v_mfma_f32_32x32x8bf16_1k", "v_mfma_scale_f32_32x32x64_f8f6f4", ...
bool ParseShape(const Machine& m, const Decoded& d, Shape* shape) {
  const std::string& n = d.name;
  const size_t at = n.find("_f32_");
  int columns = 0;
  if (at == std::string::npos ||
      std::sscanf(n.c_str() + at, "_f32_%dx%dx%d", &shape->rows, &columns, &shape->depth) != 3 ||
      shape->rows != columns || (shape->rows != 16 && shape->rows != 32)) {
    return false;
  }
  shape->scaled = absl::StartsWith(n, "v_mfma_scale");
  shape->sparse = absl::StartsWith(n, "v_smfmac");
  const NumberFormat fp8 = m.fnuz ? NumberFormat::kE4m3Fnuz : NumberFormat::kE4m3;
  if (absl::StrContains(n, "bf16")) {
    shape->a = shape->b = NumberFormat::kBf16;
  } else if (absl::EndsWith(n, "f8f6f4")) {
    shape->a = static_cast<NumberFormat>(d.format_a);
    shape->b = static_cast<NumberFormat>(d.format_b);
    // Six- and four-bit elements are used by no kernel.
    return d.format_a < 2 && d.format_b < 2;
  } else if (absl::EndsWith(n, "fp8_fp8")) {
    shape->a = shape->b = fp8;
  } else if (absl::EndsWith(n, "f16")) {
    shape->a = shape->b = NumberFormat::kF16;
  } else {
    return false;
  }
  return true;
}

// The k of element e of a lane: lanes of one group hold consecutive stretches. The wide shapes of eight-bit numbers hold two stretches
// of 16, half of the depth apart.
int DepthOf(const Shape& shape, int lane, int e) {
  const int groups = kLanes / shape.rows;
  const int group = lane / shape.rows;
  const int per_lane = shape.depth / groups;
  if (per_lane == 32) return (e / 16) * (shape.depth / 2) + group * 16 + e % 16;
  return group * per_lane + e;
}

class FormatTable {
 public:
  FormatTable() {
    for (const NumberFormat f :
         {NumberFormat::kE4m3, NumberFormat::kE5m2, NumberFormat::kE4m3Fnuz}) {
      for (uint32_t i = 0; i < 256; ++i) table_[static_cast<size_t>(f)][i] = DecodeFloat(f, i);
    }
  }
  float Decode(NumberFormat f, uint32_t bits) const { return table_[static_cast<size_t>(f)][bits]; }

 private:
  std::array<std::array<float, 256>, 9> table_ = {};
};

// Element e of a lane's operand, which begins at register `first`.
float Element(const Machine& m, const Wave& w, NumberFormat format, uint16_t first, int lane,
              int e) {
  static const FormatTable kTable;
  const auto l = static_cast<size_t>(lane);
  const auto at = static_cast<size_t>(e);
  if (emulator::FormatBits(format) == 8) {
    return kTable.Decode(format, w.v[first + at / 4][l] >> (8 * (at % 4)) & 255);
  }
  const uint32_t bits = w.v[first + at / 2][l] >> (16 * (at % 2)) & 0xffff;
  if (format != NumberFormat::kBf16) return DecodeFloat(format, bits);
  const float x = AsFloat(bits << 16);
  return m.flush_matrix && std::fabs(x) < kSmallestNormal ? std::copysign(0.0f, x) : x;
}

// E8M0 of a lane: 255 is NaN. A scalar or constant is not read as a vector register is: gfx950 takes bits 23 to 30 of it
// (llvm-project#158117), so a value that says something else in its lowest byte is a finding.
double Scale(Machine& m, const Wave& w, const Operand& o, int byte, int lane) {
  uint32_t bits;
  if (o.kind == OperandKind::kVector) {
    bits = w.v[o.index][static_cast<size_t>(lane)] >> (8 * byte) & 255;
  } else {
    const uint32_t word = ScalarWord(w, o);
    bits = word >> (8 * byte) & 255;
    if ((word >> 23 & 255) != bits) {
      m.Find(w,
             "takes a scale from a scalar register, of which gfx950 reads bits 23 to 30 and not "
             "the byte that was meant");
    }
  }
  return bits == 255 ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

void Execute(Machine& m, Wave& w, const Decoded& d) {
  Shape shape;
  if (!ParseShape(m, d, &shape)) {
    m.Fail(w, "is a matrix instruction that is not modelled");
    return;
  }
  ++m.matrix_operations;
  if (w.exec() != ~0ull) m.Find(w, "multiplies with lanes switched off, which is ignored");
  const int rows = shape.rows;
  const int depth = shape.depth;
  // Transposed, so that the inner loop runs along columns: a[k][i], b[k][j].
  thread_local std::array<float, 128 * 32> a, b;
  thread_local std::array<double, 32 * 32> sum;
  const int groups = kLanes / rows;
  const int per_lane = depth / groups;
  const Operand& first = d.operand[1];
  const Operand& second = d.operand[2];
  if (first.kind != OperandKind::kVector || second.kind != OperandKind::kVector) {
    m.Fail(w, "multiplies something else than registers");
    return;
  }
  if (shape.sparse) a.fill(0.0f);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane % rows;
    const int group = lane / rows;
    if (shape.sparse) {
      // Two of each four along k are stored, and two bits for each say which.
      const uint32_t index = w.v[d.operand[3].index][static_cast<size_t>(lane)];
      for (int e = 0; e < per_lane / 2; ++e) {
        const int k = group * per_lane + e / 2 * 4 + static_cast<int>(index >> (2 * e) & 3);
        a[static_cast<size_t>(k * 32 + row)] += Element(m, w, shape.a, first.index, lane, e);
      }
    }
    for (int e = 0; e < per_lane; ++e) {
      const auto at = static_cast<size_t>(DepthOf(shape, lane, e) * 32 + row);
      if (!shape.sparse) a[at] = Element(m, w, shape.a, first.index, lane, e);
      b[at] = Element(m, w, shape.b, second.index, lane, e);
    }
  }
  if (shape.scaled) {
    // One exponent for each row (or column) and 32 elements along k: lane = row + rows * block. Powers of two change nothing else.
    const int byte_a = (d.op_sel & 1) | (d.op_sel_hi & 1) << 1;
    const int byte_b = (d.op_sel >> 1 & 1) | (d.op_sel_hi >> 1 & 1) << 1;
    for (int lane = 0; lane < kLanes; ++lane) {
      const double scale_a = Scale(m, w, d.operand[4], byte_a, lane);
      const double scale_b = Scale(m, w, d.operand[5], byte_b, lane);
      for (int k = lane / rows * 32; k < lane / rows * 32 + 32; ++k) {
        const auto at = static_cast<size_t>(k * 32 + lane % rows);
        a[at] = static_cast<float>(a[at] * scale_a);
        b[at] = static_cast<float>(b[at] * scale_b);
      }
    }
  }
  const auto stride = static_cast<size_t>(rows);
  for (size_t i = 0; i < stride; ++i) {
    double* const to = &sum[i * 32];
    for (size_t j = 0; j < stride; ++j) to[j] = 0;
    for (size_t k = 0; k < static_cast<size_t>(depth); ++k) {
      const double x = a[k * 32 + i];
      const float* const from = &b[k * 32];
      for (size_t j = 0; j < stride; ++j) to[j] += x * static_cast<double>(from[j]);
    }
  }
  // A sparse product adds to its destination; its fourth operand is the index.
  const Operand& addend = shape.sparse ? d.operand[0] : d.operand[3];
  const int results = rows * rows / kLanes;
  // Collected first: the addend may overlap the result.
  std::array<Lanes, 16> all;
  for (int r = 0; r < results; ++r) {
    Lanes& out = all[static_cast<size_t>(r)];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int column = lane % rows;
      const int row = rows == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
      const auto l = static_cast<size_t>(lane);
      float c = AsFloat(addend.kind == OperandKind::kVector
                            ? w.v[addend.index + static_cast<size_t>(r)][l]
                            : ScalarWord(w, addend));
      if (m.flush_matrix && std::fabs(c) < kSmallestNormal) c = 0;
      float x = static_cast<float>(sum[static_cast<size_t>(row * 32 + column)] + c);
      if (m.flush_matrix && std::fabs(x) < kSmallestNormal) x = 0;
      out[l] = AsBits(x);
    }
  }
  for (int r = 0; r < results; ++r) {
    w.v[d.operand[0].index + static_cast<size_t>(r)] = all[static_cast<size_t>(r)];
  }
}

}  // namespace

void AddMatrixHandlers(Handlers* handlers) {
  for (const char* name : {"v_mfma_f32_32x32x16_bf16",         "v_mfma_f32_16x16x32_bf16",
                           "v_mfma_f32_32x32x8_bf16",          "v_mfma_f32_16x16x16_bf16",
                           "v_mfma_f32_32x32x8bf16_1k",        "v_mfma_f32_16x16x16bf16_1k",
                           "v_mfma_f32_32x32x16_f16",          "v_mfma_f32_16x16x32_f16",
                           "v_mfma_f32_32x32x8_f16",           "v_mfma_f32_32x32x8f16",
                           "v_mfma_f32_16x16x16_f16",          "v_mfma_f32_16x16x16f16",
                           "v_mfma_f32_32x32x16_fp8_fp8",      "v_mfma_f32_16x16x32_fp8_fp8",
                           "v_mfma_f32_32x32x64_f8f6f4",       "v_mfma_f32_16x16x128_f8f6f4",
                           "v_mfma_scale_f32_32x32x64_f8f6f4", "v_mfma_scale_f32_16x16x128_f8f6f4",
                           "v_smfmac_f32_16x16x128_fp8_fp8",   "v_smfmac_f32_16x16x64_fp8_fp8"}) {
    (*handlers)[name] = Execute;
  }
}

}  // namespace whet::isa
