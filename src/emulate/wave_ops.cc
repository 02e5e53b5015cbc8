#include "src/emulate/wave_ops.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/emulate/number_formats.h"

namespace whet::emulator {
namespace {

template <typename T>
T Read(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename T>
void Write(void* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

const WhetWaveOp& First(const WaveOperands& lanes) {
  for (const WhetWaveOp* lane : lanes) {
    if (lane != nullptr) return *lane;
  }
  std::abort();
}

// The matrix instructions ignore the execution mask; an exited lane's registers count as zero here.
bool Mfma(const WaveOperands& lanes) {
  const WhetWaveOp& first = First(lanes);
  const auto format_a = static_cast<NumberFormat>(first.immediate[2]);
  const auto format_b = static_cast<NumberFormat>(first.immediate[3]);
  const int rows = static_cast<int>(first.immediate[0]);
  const int k = static_cast<int>(first.immediate[1]);
  const MatrixShape shape_a{rows, k, FormatBits(format_a)};
  const MatrixShape shape_b{rows, k, FormatBits(format_b)};
  std::vector<float> a(static_cast<size_t>(rows * k)), b(a.size()), scale_a, scale_b;
  const int per_lane = shape_a.ElementsPerLane();
  const bool scaled = first.operand[4] != nullptr;
  if (scaled) scale_a.assign(static_cast<size_t>(rows * (k / 32)), 1.0f), scale_b = scale_a;
  for (int lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[static_cast<size_t>(lane)];
    if (op == nullptr) continue;
    for (int e = 0; e < per_lane; ++e) {
      a[static_cast<size_t>(shape_a.Row(lane) * k + shape_a.K(lane, e))] =
          DecodeFloat(format_a, PackedElement(op->operand[0], format_a, e));
      b[static_cast<size_t>(shape_b.Row(lane) * k + shape_b.K(lane, e))] =
          DecodeFloat(format_b, PackedElement(op->operand[1], format_b, e));
    }
    if (scaled) {
      // One E8M0 byte per row and 32 elements of k; 255 is NaN.
      const auto value = [&](int operand, long long byte) {
        const uint32_t bits =
            Read<uint32_t>(static_cast<char*>(op->operand[4]) + 4 * operand) >> (8 * byte) & 255;
        return bits == 255 ? std::nanf("") : std::ldexp(1.0f, static_cast<int>(bits) - 127);
      };
      const auto at = static_cast<size_t>(lane % rows * (k / 32) + lane / rows);
      scale_a[at] = value(0, op->immediate[4]);
      scale_b[at] = value(1, op->immediate[5]);
    }
  }
  const int results = rows * rows / kMaxWaveSize;
  for (int lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[static_cast<size_t>(lane)];
    if (op == nullptr) continue;
    const float* const column = &b[static_cast<size_t>(shape_a.DColumn(lane) * k)];
    for (int r = 0; r < results; ++r) {
      const int i = shape_a.DRow(lane, r);
      const float* const row = &a[static_cast<size_t>(i * k)];
      float sum = 0;
      if (scaled) {
        for (int block = 0; block < k / 32; ++block) {
          float part = 0;
          for (int e = 0; e < 32; ++e) part += row[block * 32 + e] * column[block * 32 + e];
          sum += part * scale_a[static_cast<size_t>(i * (k / 32) + block)] *
                 scale_b[static_cast<size_t>(shape_a.DColumn(lane) * (k / 32) + block)];
        }
      } else {
        for (int e = 0; e < k; ++e) sum += row[e] * column[e];
      }
      auto* const c = static_cast<float*>(op->operand[2]);
      auto* const d = static_cast<float*>(op->operand[3]);
      d[r] = c[r] + sum;
    }
  }
  return true;
}

// A is 4:2 sparse: of each four k, two elements are stored, and two 2-bit numbers of the index say which.
bool Smfmac(const WaveOperands& lanes) {
  const WhetWaveOp& first = First(lanes);
  const int rows = static_cast<int>(first.immediate[0]);
  const int k = static_cast<int>(first.immediate[1]);
  if (rows != 16 || k != 128) return false;
  const auto format_a = static_cast<NumberFormat>(first.immediate[2]);
  const auto format_b = static_cast<NumberFormat>(first.immediate[3]);
  if (FormatBits(format_a) != 8 || FormatBits(format_b) != 8) return false;
  const MatrixShape dense{rows, k, 8};
  std::vector<float> a(static_cast<size_t>(rows * k)), b(a.size());
  for (int lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[static_cast<size_t>(lane)];
    if (op == nullptr) continue;
    for (int e = 0; e < 32; ++e) {
      b[static_cast<size_t>(lane % 16 * k + dense.K(lane, e))] =
          DecodeFloat(format_b, PackedElement(op->operand[1], format_b, e));
    }
    const auto index = Read<uint32_t>(op->operand[4]);
    // A lane's 16 stored elements cover 32 consecutive k, in groups of four.
    for (int e = 0; e < 16; ++e) {
      const int within = static_cast<int>(index >> (2 * e) & 3);
      const int at = 32 * (lane / 16) + e / 2 * 4 + within;
      a[static_cast<size_t>(lane % 16 * k + at)] +=
          DecodeFloat(format_a, PackedElement(op->operand[0], format_a, e));
    }
  }
  for (int lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[static_cast<size_t>(lane)];
    if (op == nullptr) continue;
    for (int r = 0; r < 4; ++r) {
      const int i = dense.DRow(lane, r);
      float sum = 0;
      for (int e = 0; e < k; ++e)
        sum +=
            a[static_cast<size_t>(i * k + e)] * b[static_cast<size_t>(dense.DColumn(lane) * k + e)];
      static_cast<float*>(op->operand[3])[r] = static_cast<float*>(op->operand[2])[r] + sum;
    }
  }
  return true;
}

// ds_read_b64_tr: within 16 lanes, lane l supplies the address of 8 bytes and receives a column of what the 16 lanes loaded. With
// 16-bit elements a row of 16 is four lanes' pieces, so four rows; with 8-bit elements a row is two lanes' pieces, so eight rows.
bool ReadTranspose(const WaveOperands& lanes) {
  const int bits = static_cast<int>(First(lanes).immediate[0]);
  if (bits != 16 && bits != 8) return false;
  const int bytes = bits / 8;
  const int per_piece = 8 / bytes;
  const int lanes_per_row = 16 / per_piece;
  unsigned char loaded[kMaxWaveSize][8] = {};
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] != nullptr) std::memcpy(loaded[lane], lanes[lane]->operand[0], 8);
  }
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] == nullptr) continue;
    const size_t group = lane / 16 * 16;
    const int column = static_cast<int>(lane % 16);
    auto* const result = static_cast<unsigned char*>(lanes[lane]->operand[1]);
    for (int row = 0; row < per_piece; ++row) {
      const size_t from = group + static_cast<size_t>(row * lanes_per_row + column / per_piece);
      std::memcpy(result + row * bytes, loaded[from] + column % per_piece * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  return true;
}

// 32: the upper half of `first` changes places with the lower half of `second`; 16: odd rows of 16 with even ones.
bool PermlaneSwap(const WaveOperands& lanes) {
  const auto half = static_cast<size_t>(First(lanes).immediate[0]);
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lane / half % 2 != 0) continue;
    WhetWaveOp* const low = lanes[lane];
    WhetWaveOp* const high = lanes[lane + half];
    if (low == nullptr || high == nullptr) continue;
    const auto a = Read<uint32_t>(high->operand[0]);
    const auto b = Read<uint32_t>(low->operand[1]);
    Write(high->operand[0], b);
    Write(low->operand[1], a);
  }
  return true;
}

// The lane that a DPP control reads from, or -1 where it reads outside its row (or wave).
int DppSource(int lane, int control) {
  const int row = lane / 16 * 16;
  const int at = lane % 16;
  const auto inside = [&](int to) { return to >= 0 && to < 16 ? row + to : -1; };
  if (control <= 0xff) return lane / 4 * 4 + (control >> (2 * (lane % 4)) & 3);
  if (control >= 0x101 && control <= 0x10f) return inside(at + control - 0x100);
  if (control >= 0x111 && control <= 0x11f) return inside(at - (control - 0x110));
  if (control >= 0x121 && control <= 0x12f) return row + (at - (control - 0x120) + 16) % 16;
  if (control >= 0x150 && control <= 0x15f) return row + control - 0x150;
  switch (control) {
    case 0x130:
      return lane + 1 < kMaxWaveSize ? lane + 1 : -1;
    case 0x134:
      return (lane + 1) % kMaxWaveSize;
    case 0x138:
      return lane - 1;
    case 0x13c:
      return (lane + kMaxWaveSize - 1) % kMaxWaveSize;
    case 0x140:
      return row + 15 - at;
    case 0x141:
      return row + at / 8 * 8 + 7 - at % 8;
    case 0x142:
      return row == 0 ? -1 : row - 1;
    case 0x143:
      return lane < 32 ? -1 : 31;
    default:
      return -2;
  }
}

bool Dpp(const WaveOperands& lanes) {
  uint32_t source[kMaxWaveSize] = {};
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] != nullptr) source[lane] = Read<uint32_t>(lanes[lane]->operand[1]);
  }
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[lane];
    if (op == nullptr) continue;
    const int from = DppSource(static_cast<int>(lane), static_cast<int>(op->immediate[0]));
    if (from == -2) return false;
    const bool enabled =
        op->immediate[1] >> (lane / 16) & 1 && op->immediate[2] >> (lane % 16 / 4) & 1;
    uint32_t result = Read<uint32_t>(op->operand[0]);
    if (enabled) {
      if (from >= 0 && lanes[static_cast<size_t>(from)] != nullptr) {
        result = source[from];
      } else if (op->immediate[3]) {
        result = 0;
      }
    }
    Write(op->operand[2], result);
  }
  return true;
}

bool Gather(const WaveOperands& lanes, int op_code) {
  const bool swizzle = op_code == kWhetSwizzle;
  const int source_operand = swizzle ? 0 : 1;
  uint32_t source[kMaxWaveSize] = {}, result[kMaxWaveSize] = {};
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] != nullptr) source[lane] = Read<uint32_t>(lanes[lane]->operand[source_operand]);
  }
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    const WhetWaveOp* const op = lanes[lane];
    if (op == nullptr) continue;
    if (swizzle) {
      const auto pattern = static_cast<size_t>(op->immediate[0]);
      size_t from = lane / 4 * 4 + (pattern >> (2 * (lane % 4)) & 3);
      if ((pattern & 0x8000) == 0) {
        from = lane / 32 * 32 +
               (((lane % 32 & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
      }
      result[lane] = source[from];
    } else {
      const size_t other = Read<uint32_t>(op->operand[0]) / 4 % kMaxWaveSize;
      if (op_code == kWhetBpermute) {
        result[lane] = source[other];
      } else {
        result[other] = source[lane];
      }
    }
  }
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] != nullptr) Write(lanes[lane]->operand[swizzle ? 1 : 2], result[lane]);
  }
  return true;
}

bool Ballot(const WaveOperands& lanes) {
  uint64_t mask = 0;
  for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
    if (lanes[lane] != nullptr && Read<int>(lanes[lane]->operand[0]) != 0)
      mask |= uint64_t{1} << lane;
  }
  for (const WhetWaveOp* op : lanes) {
    if (op != nullptr) Write(op->operand[1], mask);
  }
  return true;
}

bool Broadcast(const WaveOperands& lanes) {
  const WhetWaveOp& first = First(lanes);
  const bool named = first.op == kWhetReadLane;
  const WhetWaveOp* const from =
      named ? lanes[Read<uint32_t>(first.operand[1]) % kMaxWaveSize] : &first;
  const uint32_t value = from == nullptr ? 0 : Read<uint32_t>(from->operand[0]);
  for (const WhetWaveOp* op : lanes) {
    if (op != nullptr) Write(op->operand[named ? 2 : 1], value);
  }
  return true;
}

}  // namespace

int MatrixShape::K(int lane, int index) const {
  const int groups = kMaxWaveSize / rows;  // groups of lanes that share a row
  const int group = lane / rows;
  const int per_lane = ElementsPerLane();
  // The 8-bit shapes with 32 elements per lane hold two runs of 16; every other shape holds one run.
  if (bits == 8 && per_lane == 32) return index / 16 * 16 * groups + 16 * group + index % 16;
  return per_lane * group + index;
}

int MatrixShape::DRow(int lane, int index) const {
  if (rows == 16) return 4 * (lane / 16) + index;
  return 8 * (index / 4) + 4 * (lane / 32) + index % 4;
}

bool ExecuteWaveOp(const WaveOperands& lanes) {
  switch (First(lanes).op) {
    case kWhetMfma:
      return Mfma(lanes);
    case kWhetSmfmac:
      return Smfmac(lanes);
    case kWhetReadTranspose:
      return ReadTranspose(lanes);
    case kWhetPermlaneSwap:
      return PermlaneSwap(lanes);
    case kWhetDpp:
      return Dpp(lanes);
    case kWhetBpermute:
    case kWhetPermute:
    case kWhetSwizzle:
      return Gather(lanes, First(lanes).op);
    case kWhetBallot:
      return Ballot(lanes);
    case kWhetReadFirstLane:
    case kWhetReadLane:
      return Broadcast(lanes);
    default:
      return false;
  }
}

}  // namespace whet::emulator
