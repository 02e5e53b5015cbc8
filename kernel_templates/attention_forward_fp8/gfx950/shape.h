// What the problem and the variant fix: tiles, slots, the map of LDS, and where references lie.
#pragma once

#include "common/amd_fp8.h"

namespace {

using whet::Float16;
using whet::Float2;
using whet::Float4;
using whet::Int4;
using whet::Int64;
using whet::Int8;
using whet::Uint2;
using whet::Uint4;

constexpr int kWaves = LAUNCH_BLOCK_X / 64;
constexpr int kGroups = TUNE_ROWS / 32;  // of 32 rows, of a wave: they share its reads of K and V
constexpr int kBlockRows = TUNE_ROWS * kWaves;
constexpr int kKeys = 64;       // of a step
constexpr int kTileKeys = 128;  // of a stage in LDS
constexpr int kStages = 3;

constexpr int kDqk = SHAPE_DQK;
constexpr int kDv = SHAPE_DV;
constexpr Int64 kSeqQ = SHAPE_SEQ_Q;
constexpr Int64 kSeqKv = SHAPE_SEQ_KV;
constexpr int kHeadsQ = SHAPE_HEADS_Q;
constexpr Int64 kBatchHeads = static_cast<Int64>(SHAPE_BATCH) * kHeadsQ;
constexpr Int64 kBlocksPerHead = (kSeqQ + kBlockRows - 1) / kBlockRows;

static_assert(SHAPE_DTYPE == WHET_E4M3, "gfx950 multiplies OCP e4m3");
static_assert(kDqk % 16 == 0 && kDqk <= 192 && kDv % 8 == 0 && kDv <= 128,
              "dqk must be a multiple of 16 up to 192, dv of 8 up to 128");
static_assert(SHAPE_ALIGNMENT >= 16, "16-byte loads need tensors aligned to 16 bytes");
static_assert(SHAPE_Q_STRIDE_S % 16 == 0 && SHAPE_K_STRIDE_S % 16 == 0 &&
                  SHAPE_V_STRIDE_D % 16 == 0 && SHAPE_O_STRIDE_S % 8 == 0,
              "rows must start at multiples of 16 bytes");

constexpr int kRoute = TUNE_WEIGHTS;
typedef whet::Weights<kRoute, false> W;
constexpr bool kExact = SHAPE_EXACT_EXPONENTS != 0;
constexpr bool kLazy = TUNE_LAZY != 0;
// Where the largest score of a row lies once its reference has moved. A lazy reference leaves room above, or with usual data it would have
// to move again in a third of the tiles.
constexpr float kRest = kLazy ? W::kTop - 2 * W::kUnit : W::kTop;
// A tile's scores may reach this before the reference rises ...
constexpr float kHigh = kLazy ? W::kLimit : W::kTop + W::kUnit / 64;
// ... and stay below this before it falls. Nothing is lost until far below: e4m3 has 18 powers of two.
constexpr float kLow = kRest - 10 * W::kUnit;
// How far weights may lie from the output's reference, in powers of two.
constexpr int kDeepest = -100;
constexpr int kHighest = 64;

// A matrix in LDS, in 1 KiB lines, 64 rows after another: line i of `lines` holds their rows i, i + lines, ... With 16 bytes behind each
// line the reads of 16 bytes per lane meet every bank once.
struct Panel {
  int width;  // bytes of a row, 128 or 64
  int rows;
  constexpr int chunks() const { return width / 16; }
  constexpr int lines() const { return width / 16; }
  constexpr int all_lines() const { return rows / 64 * lines(); }
  constexpr int bytes() const { return all_lines() * 1040; }
  constexpr int row_at(int row) const {
    return (row / 64 * lines() + row % lines()) * 1040 + row % 64 / lines() * width;
  }
};

// K's columns beyond 128 lie in a panel of their own.
constexpr Panel kKeyPanel = {kDqk > 64 ? 128 : 64, kTileKeys};
constexpr Panel kKeyPanel2 = {64, kTileKeys};
constexpr bool kHasKeyPanel2 = kDqk > 128;
constexpr Panel kValuePanel = {kTileKeys, kDv > 64 ? 128 : 64};
constexpr int kPanel2At = kKeyPanel.bytes();
constexpr int kValuesAt = kPanel2At + (kHasKeyPanel2 ? kKeyPanel2.bytes() : 0);
constexpr int kStageBytes = kValuesAt + kValuePanel.bytes();
static_assert(kStages * kStageBytes <= LAUNCH_SHARED_BYTES,
              "shared_bytes of the kernel file is too small");

constexpr int kDepth = (kDqk + 63) / 64;   // matrix instructions along the head dimension
constexpr int kColumns = (kDv + 31) / 32;  // 32-wide blocks of channels
constexpr int kScoreSlots = 2 * kDepth;
constexpr int kOutputSlots = kColumns;
constexpr int kSlots = kScoreSlots + kOutputSlots;
constexpr int kEights = 4;  // of scores of a lane in 64 keys
constexpr int kFours = 8;
constexpr int smallest(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }
// Clang 20 (hipRTC 7.0) needs more registers for the same: with 64 rows only one fragment is read ahead there.
constexpr bool kShort = kGroups > 1 && __clang_major__ < 22;
constexpr int kLead = smallest(kShort ? 1 : TUNE_LEAD, kScoreSlots, kOutputSlots);

constexpr int kKeyLoads = kKeyPanel.all_lines() / kWaves;
constexpr int kKeyLoads2 = kHasKeyPanel2 ? kKeyPanel2.all_lines() / kWaves : 0;
constexpr int kValueLoads = kValuePanel.all_lines() / kWaves;
constexpr int kLoadsOfTile = kKeyLoads + kKeyLoads2 + kValueLoads;
static_assert(kKeyLoads >= 1 && kValueLoads >= 1 && kKeyPanel2.all_lines() % kWaves == 0,
              "every wave must have a line of each panel to load");

struct Problem {
  int lane_row;  // of the first group
  int half;      // lane / 32
};

}  // namespace
