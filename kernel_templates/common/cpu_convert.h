// Loads and stores that convert between f32 and the storage type of a tensor.
//
//   VecF x = LoadAsF32(row + 16);                 // const Bf16* or const float*
//   StoreFromF32(out, x, valid);                  // only the first `valid` lanes are written
#ifndef WHET_COMMON_CPU_CONVERT_H_
#define WHET_COMMON_CPU_CONVERT_H_

#include "common/cpu_block.h"
#include "common/cpu_vec.h"

// A bfloat16 as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

WHET_CPU_FN float ToF32(float x) { return x; }

WHET_CPU_FN float ToF32(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

WHET_CPU_FN VecF LoadAsF32(const float* p) { return LoadVec(p); }

WHET_CPU_FN VecF LoadAsF32(const Bf16* p) {
  VecU16 half;
  __builtin_memcpy(&half, p, sizeof(half));
  return (VecF)(__builtin_convertvector(half, VecU) << 16);
}

// The first count elements, then zeros; nothing behind them is read. A full load when count >= kLanes.
template <class T>
WHET_CPU_FN VecF LoadFirstAsF32(const T* p, int count) {
  if (count >= kLanes) return LoadAsF32(p);
  T part[kLanes] = {};
  for (int i = 0; i < kLanes - 1; ++i) {
    if (i < count) part[i] = p[i];
  }
  return LoadAsF32(part);
}

// The bits of the first count elements of T, as they lie in memory, then zeros; nothing behind them is
// read. One 32-bit lane holds one f32 or two bf16, the first in the low half.
template <class T>
WHET_CPU_FN VecF LoadFirstBits(const T* p, int count) {
  constexpr int kWhole = kLanes * 4 / static_cast<int>(sizeof(T));
  T part[kWhole] = {};
  if (count < kWhole) {
    for (int i = 0; i < kWhole - 1; ++i) {
      if (i < count) part[i] = p[i];
    }
    p = part;
  }
  VecF bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return bits;
}

// The lower and the higher bf16 of every lane.
WHET_CPU_FN VecF LowBf16AsF32(VecF pairs) { return (VecF)((VecU)pairs << 16); }

WHET_CPU_FN VecF HighBf16AsF32(VecF pairs) { return (VecF)((VecU)pairs & 0xffff0000u); }

// Round to nearest, ties to even. A NaN stays a NaN: plain rounding would carry some into infinity.
WHET_CPU_FN VecU16 RoundToBf16(VecF v) {
  const VecU bits = (VecU)v;
  const VecU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((v == v) ? rounded : quiet, VecU16);
}

WHET_CPU_FN void StoreFromF32(float* p, VecF v, int count) {
  if (count >= kLanes) {
    StoreVec(p, v);
  } else {
    __builtin_memcpy(p, &v, static_cast<unsigned>(count) * sizeof(float));
  }
}

WHET_CPU_FN void StoreFromF32(Bf16* p, VecF v, int count) {
  const VecU16 half = RoundToBf16(v);
  if (count >= kLanes) {
    __builtin_memcpy(p, &half, sizeof(half));
  } else {
    __builtin_memcpy(p, &half, static_cast<unsigned>(count) * sizeof(Bf16));
  }
}

// What a dtype code of the prelude is in memory.
template <int kDtype>
struct StorageOf;
template <>
struct StorageOf<WHET_F32> {
  using Type = float;
};
template <>
struct StorageOf<WHET_BF16> {
  using Type = Bf16;
};

#endif  // WHET_COMMON_CPU_CONVERT_H_
