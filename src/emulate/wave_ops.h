// What CDNA's cross-lane and matrix instructions compute, on the operands of all lanes of a wave. Pure functions: whether an operand
// may be read, and when, is the machine's business.
//
//   WaveOperands lanes = ...;                       // one WhetWaveOp per lane, null where the lane has exited
//   if (!ExecuteWaveOp(lanes)) ...                  // the operation is unknown or its immediates are not supported
#pragma once

#include <array>

#include "src/emulate/hooks.h"

namespace whet::emulator {

inline constexpr int kMaxWaveSize = 64;
using WaveOperands = std::array<WhetWaveOp*, kMaxWaveSize>;

// Where the elements of a matrix instruction's operands lie. `index` counts elements of a lane's operand from 0.
struct MatrixShape {
  int rows;  // rows of A and D, and columns of B and D: 16 or 32
  int k;
  int bits;  // of an element of A or B

  // The row of A (column of B) and the k of element `index` of `lane`.
  int Row(int lane) const { return lane % rows; }
  int K(int lane, int index) const;
  int ElementsPerLane() const { return rows * k / kMaxWaveSize; }
  // The row and column of D's element `index` of `lane`.
  int DRow(int lane, int index) const;
  int DColumn(int lane) const { return lane % rows; }
};

// Executes one operation for all lanes at once: every non-null entry has the same op and immediates. Memory operations
// (kWhetAsyncToLds, barriers and waits) are not handled here. Returns false for what is not known.
bool ExecuteWaveOp(const WaveOperands& lanes);

}  // namespace whet::emulator
