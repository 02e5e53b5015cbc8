// What an emulated kernel and the emulator say to each other. This text is part of every emulated kernel, so it includes nothing.
//
// The kernel's shared object holds two pointers: WhetHooks, the way into the emulator, and WhetLane, the lane that runs now.
#pragma once

struct WhetLane {
  unsigned thread[3];
  unsigned block[3];
  unsigned lane;  // within the wave
  unsigned char* lds;
};

// One lane's part in an operation of its whole wave: immediates, and operands in the lane's own memory.
struct WhetWaveOp {
  int op;
  long long immediate[6];
  void* operand[5];
};

enum WhetOp {
  kWhetBarrier = 1,  // s_barrier
  kWhetFence,        // waits for the lane's LDS accesses (s_waitcnt lgkmcnt(0))
  kWhetWaitCount,    // immediate: s_waitcnt encoding of gfx9
  kWhetWaveBarrier,
  kWhetMfma,  // immediate: rows and columns, k, format of A, format of B, byte of scale A, byte of scale B;
              // operand: A, B, C, D, {scaleA, scaleB} or null
  kWhetSmfmac,  // immediate: rows, k, format A, format B; operand: A (sparse), B, C, D, index
  kWhetReadTranspose,  // immediate: bits of an element; operand: LDS address, result (8 bytes)
  kWhetPermlaneSwap,   // immediate: 16 or 32; operand: first, second (both in and out)
  kWhetDpp,  // immediate: control, row mask, bank mask, bound control; operand: old, source, result
  kWhetBpermute,  // operand: byte address, source, result
  kWhetPermute,
  kWhetSwizzle,        // immediate: pattern; operand: source, result
  kWhetBallot,         // operand: predicate (int), result (64 bits)
  kWhetReadFirstLane,  // operand: source, result
  kWhetReadLane,       // operand: source, lane, result
  kWhetAsyncToLds,  // immediate: bytes per lane; operand: global address (null: writes zeros), LDS base of the wave
};

struct WhetHooks {
  void (*access)(const void* address, unsigned long bytes, int write, void* site);
  void (*wave)(WhetWaveOp* op, void* site);
};
