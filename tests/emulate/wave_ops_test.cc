#include "src/emulate/wave_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "src/emulate/number_formats.h"

namespace whet::emulator {
namespace {

// A wave's registers for one operation, and the operation that points at them.
struct WaveRegisters {
  explicit WaveRegisters(int op) {
    for (size_t lane = 0; lane < kMaxWaveSize; ++lane) {
      ops[lane].op = op;
      for (size_t i = 0; i < 5; ++i) ops[lane].operand[i] = bytes[lane][i];
      lanes[lane] = &ops[lane];
    }
  }
  void Immediate(size_t i, long long value) {
    for (WhetWaveOp& op : ops) op.immediate[i] = value;
  }
  template <typename T>
  T& At(size_t lane, size_t operand, size_t index = 0) {
    return reinterpret_cast<T*>(bytes[lane][operand])[index];
  }

  alignas(64) unsigned char bytes[kMaxWaveSize][5][64] = {};
  WhetWaveOp ops[kMaxWaveSize] = {};
  WaveOperands lanes = {};
};

// The documented layout of each shape: which k a lane's element holds. Rows and columns are lane % rows in all of them.
struct LayoutCase {
  std::string name;
  int rows, k;
  NumberFormat format;
  std::function<int(int lane, int element)> k_of;
};

std::vector<LayoutCase> Layouts() {
  return {
      {"32x32x8 bf16", 32, 8, NumberFormat::kBf16, [](int l, int e) { return 4 * (l / 32) + e; }},
      {"16x16x16 bf16", 16, 16, NumberFormat::kBf16, [](int l, int e) { return 4 * (l / 16) + e; }},
      {"32x32x16 bf16", 32, 16, NumberFormat::kBf16, [](int l, int e) { return 8 * (l / 32) + e; }},
      {"16x16x32 bf16", 16, 32, NumberFormat::kBf16, [](int l, int e) { return 8 * (l / 16) + e; }},
      {"32x32x16 f16", 32, 16, NumberFormat::kF16, [](int l, int e) { return 8 * (l / 32) + e; }},
      {"32x32x16 fp8", 32, 16, NumberFormat::kE4m3, [](int l, int e) { return 8 * (l / 32) + e; }},
      {"32x32x16 fp8 fnuz", 32, 16, NumberFormat::kE4m3Fnuz,
       [](int l, int e) { return 8 * (l / 32) + e; }},
      {"16x16x32 fp8", 16, 32, NumberFormat::kE4m3, [](int l, int e) { return 8 * (l / 16) + e; }},
      {"32x32x64 fp8", 32, 64, NumberFormat::kE4m3,
       [](int l, int e) { return (e < 16 ? 0 : 32) + 16 * (l / 32) + e % 16; }},
      {"32x32x64 bf8", 32, 64, NumberFormat::kE5m2,
       [](int l, int e) { return (e < 16 ? 0 : 32) + 16 * (l / 32) + e % 16; }},
      {"32x32x64 fp4", 32, 64, NumberFormat::kE2m1, [](int l, int e) { return 32 * (l / 32) + e; }},
      {"16x16x128 fp8", 16, 128, NumberFormat::kE4m3,
       [](int l, int e) { return (e < 16 ? 0 : 64) + 16 * (l / 16) + e % 16; }},
      {"16x16x128 fp4", 16, 128, NumberFormat::kE2m1,
       [](int l, int e) { return 32 * (l / 16) + e; }},
  };
}

void SetElement(void* data, NumberFormat format, int index, float value) {
  auto* const bytes = static_cast<unsigned char*>(data);
  const int bits = FormatBits(format);
  const uint32_t code = EncodeFloat(format, value);
  for (int b = 0; b < bits; ++b) {
    const int at = index * bits + b;
    bytes[at / 8] =
        static_cast<unsigned char>((bytes[at / 8] & ~(1 << at % 8)) | (code >> b & 1) << at % 8);
  }
}

// The row of D that register `r` of `lane` holds.
int DRowOf(int rows, int lane, int r) {
  return rows == 16 ? 4 * (lane / 16) + r : 8 * (r / 4) + 4 * (lane / 32) + r % 4;
}

// One element of A is 1. Column c of B holds f(c + k) with few distinct values, for two functions that tell every k apart, so a wrong
// place of any element of A, B or D shows.
TEST(WaveOps, MatrixLayoutsOneHot) {
  for (const LayoutCase& c : Layouts()) {
    SCOPED_TRACE(c.name);
    const int per_lane = c.rows * c.k / 64;
    for (int digit = 0; digit < 2; ++digit) {
      // 1, 2, 3, 4 and 6 are exact in every format; five values, so base 5 needs up to three digits for k < 128, but neighbouring
      // columns see shifted digits.
      const float values[] = {1, 2, 3, 4, 6};
      const auto expected = [&](int column, int k) {
        return values[(column + (digit == 0 ? k : k / 5 + k / 25)) % 5];
      };
      WaveRegisters w(kWhetMfma);
      w.Immediate(0, c.rows);
      w.Immediate(1, c.k);
      w.Immediate(2, static_cast<int>(c.format));
      w.Immediate(3, static_cast<int>(c.format));
      for (size_t lane = 0; lane < 64; ++lane) {
        w.ops[lane].operand[4] = nullptr;
        for (int e = 0; e < per_lane; ++e) {
          const int column = static_cast<int>(lane) % c.rows;
          SetElement(w.bytes[lane][1], c.format, e,
                     expected(column, c.k_of(static_cast<int>(lane), e)));
        }
      }
      for (int hot_lane = 0; hot_lane < 64; ++hot_lane) {
        for (int hot = 0; hot < per_lane; ++hot) {
          SetElement(w.bytes[hot_lane][0], c.format, hot, 1.0f);
          ASSERT_TRUE(ExecuteWaveOp(w.lanes));
          SetElement(w.bytes[hot_lane][0], c.format, hot, 0.0f);
          const int hot_row = hot_lane % c.rows;
          const int hot_k = c.k_of(hot_lane, hot);
          for (size_t lane = 0; lane < 64; ++lane) {
            for (int r = 0; r < c.rows * c.rows / 64; ++r) {
              const int row = DRowOf(c.rows, static_cast<int>(lane), r);
              const float want =
                  row == hot_row ? expected(static_cast<int>(lane) % c.rows, hot_k) : 0.0f;
              ASSERT_EQ(w.At<float>(lane, 3, static_cast<size_t>(r)), want)
                  << "hot lane " << hot_lane << " element " << hot << ", lane " << lane
                  << " register " << r;
            }
          }
        }
      }
    }
  }
}

TEST(WaveOps, ScaleBytesBelongToRowsAndBlocksOf32) {
  for (const int rows : {32, 16}) {
    const int k = rows == 32 ? 64 : 128;
    WaveRegisters w(kWhetMfma);
    w.Immediate(0, rows);
    w.Immediate(1, k);
    w.Immediate(4, 1);  // byte 1 of the first scale, byte 2 of the second
    w.Immediate(5, 2);
    for (size_t lane = 0; lane < 64; ++lane) {
      for (int e = 0; e < 32; ++e) {
        SetElement(w.bytes[lane][0], NumberFormat::kE4m3, e, 1.0f);
        SetElement(w.bytes[lane][1], NumberFormat::kE4m3, e, 1.0f);
      }
      const uint32_t block = static_cast<uint32_t>(lane) / static_cast<uint32_t>(rows);
      const uint32_t row = static_cast<uint32_t>(lane) % static_cast<uint32_t>(rows);
      w.At<uint32_t>(lane, 4, 0) = (127 + block + row % 3) << 8;
      w.At<uint32_t>(lane, 4, 1) = (127 + row % 2) << 16;
    }
    ASSERT_TRUE(ExecuteWaveOp(w.lanes));
    for (size_t lane = 0; lane < 64; ++lane) {
      for (int r = 0; r < rows * rows / 64; ++r) {
        const int row = DRowOf(rows, static_cast<int>(lane), r);
        float want = 0;
        for (int block = 0; block < k / 32; ++block)
          want += 32.0f *
                  static_cast<float>(1 << block << row % 3 << static_cast<int>(lane) % rows % 2);
        ASSERT_EQ(w.At<float>(lane, 3, static_cast<size_t>(r)), want);
      }
    }
  }
}

// The row sum that published FP8 kernels take with one sparse instruction per 64 keys: constants per lane as they use them.
TEST(WaveOps, SparseOnesSumRows) {
  WaveRegisters w(kWhetSmfmac);
  w.Immediate(0, 16);
  w.Immediate(1, 128);
  float sums[64] = {};
  for (size_t lane = 0; lane < 64; ++lane) {
    const uint32_t ones = (lane & 3) < 2 ? 0x38383838u : 0u;
    for (size_t i = 0; i < 4; ++i)
      w.At<uint32_t>(lane, 0, i) = ((lane & 4) == 0) == (i < 2) ? ones : 0u;
    w.At<uint32_t>(lane, 4) = (lane & 3) == 1 ? 0xeeeeeeeeu : 0x44444444u;
    for (int e = 0; e < 32; ++e) {
      const float value = static_cast<float>((static_cast<int>(lane) * 7 + e) % 9);
      SetElement(w.bytes[lane][1], NumberFormat::kE4m3, e, value);
      sums[lane % 32] += value;
    }
  }
  ASSERT_TRUE(ExecuteWaveOp(w.lanes));
  for (size_t lane = 0; lane < 64; ++lane) {
    EXPECT_EQ(w.At<float>(lane, 3, 0) + w.At<float>(lane, 3, 1), sums[lane % 32]) << lane;
  }
}

TEST(WaveOps, TransposedReads) {
  for (const int bits : {16, 8}) {
    WaveRegisters w(kWhetReadTranspose);
    w.Immediate(0, bits);
    // Within 16 lanes: R rows of 16 elements, element = row * 16 + column (and the group of lanes, in the 16-bit case).
    const size_t rows = bits == 16 ? 4 : 8;
    for (size_t lane = 0; lane < 64; ++lane) {
      const size_t per_piece = bits == 16 ? 4 : 8;
      for (size_t e = 0; e < per_piece; ++e) {
        const size_t element = lane % 16 * per_piece + e;
        if (bits == 16) {
          w.At<uint16_t>(lane, 0, e) = static_cast<uint16_t>(element + 1000 * (lane / 16));
        } else {
          w.At<uint8_t>(lane, 0, e) = static_cast<uint8_t>(element);
        }
      }
    }
    ASSERT_TRUE(ExecuteWaveOp(w.lanes));
    for (size_t lane = 0; lane < 64; ++lane) {
      for (size_t row = 0; row < rows; ++row) {
        const size_t want = row * 16 + lane % 16 + (bits == 16 ? 1000 * (lane / 16) : 0);
        EXPECT_EQ(bits == 16 ? w.At<uint16_t>(lane, 1, row) : w.At<uint8_t>(lane, 1, row), want);
      }
    }
  }
}

TEST(WaveOps, PermlaneSwaps) {
  for (const size_t half : {size_t{32}, size_t{16}}) {
    WaveRegisters w(kWhetPermlaneSwap);
    w.Immediate(0, static_cast<long long>(half));
    for (size_t lane = 0; lane < 64; ++lane) {
      w.At<uint32_t>(lane, 0) = static_cast<uint32_t>(lane);
      w.At<uint32_t>(lane, 1) = static_cast<uint32_t>(100 + lane);
    }
    ASSERT_TRUE(ExecuteWaveOp(w.lanes));
    for (size_t lane = 0; lane < 64; ++lane) {
      const bool upper = lane / half % 2 == 1;
      EXPECT_EQ(w.At<uint32_t>(lane, 0), upper ? 100 + lane - half : lane);
      EXPECT_EQ(w.At<uint32_t>(lane, 1), upper ? 100 + lane : lane + half);
    }
  }
}

TEST(WaveOps, DppControls) {
  struct Case {
    int control;
    int (*from)(int lane);  // -1: no source, the old value stays
  };
  const Case cases[] = {
      {0x1b, [](int l) { return l / 4 * 4 + 3 - l % 4; }},
      {0x101, [](int l) { return l % 16 == 15 ? -1 : l + 1; }},
      {0x112, [](int l) { return l % 16 < 2 ? -1 : l - 2; }},
      {0x121, [](int l) { return l / 16 * 16 + (l % 16 + 15) % 16; }},
      {0x140, [](int l) { return l / 16 * 16 + 15 - l % 16; }},
      {0x141, [](int l) { return l / 8 * 8 + 7 - l % 8; }},
      {0x142, [](int l) { return l < 16 ? -1 : l / 16 * 16 - 1; }},
      {0x143, [](int l) { return l < 32 ? -1 : 31; }},
      {0x153, [](int l) { return l / 16 * 16 + 3; }},
  };
  for (const Case& c : cases) {
    WaveRegisters w(kWhetDpp);
    w.Immediate(0, c.control);
    w.Immediate(1, 0xf);
    w.Immediate(2, 0xf);
    for (size_t lane = 0; lane < 64; ++lane) {
      w.At<int>(lane, 0) = -1;
      w.At<int>(lane, 1) = static_cast<int>(lane);
    }
    ASSERT_TRUE(ExecuteWaveOp(w.lanes));
    for (int lane = 0; lane < 64; ++lane)
      EXPECT_EQ(w.At<int>(static_cast<size_t>(lane), 2), c.from(lane))
          << "control " << c.control << " lane " << lane;
  }
}

TEST(WaveOps, LanesThatHaveExitedTakeNoPart) {
  WaveRegisters w(kWhetBallot);
  for (size_t lane = 0; lane < 64; ++lane) w.At<int>(lane, 0) = 1;
  w.lanes[3] = nullptr;
  ASSERT_TRUE(ExecuteWaveOp(w.lanes));
  EXPECT_EQ(w.At<uint64_t>(0, 1), ~uint64_t{8});
}

TEST(WaveOps, UnknownOperationIsRefused) {
  WaveRegisters w(999);
  EXPECT_FALSE(ExecuteWaveOp(w.lanes));
}

}  // namespace
}  // namespace whet::emulator
