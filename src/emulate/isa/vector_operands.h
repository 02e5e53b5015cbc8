// How vector instructions get at their operands and results, lane by lane. For the files that execute them.
#pragma once

#include <cmath>
#include <cstring>

#include "src/emulate/isa/machine.h"

namespace whet::isa {

inline float AsFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t AsBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double AsDouble(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline uint64_t AsBits64(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

inline uint32_t Select(uint32_t x, Part part, bool sign_extend) {
  if (part == Part::kAll) return x;
  const bool word = part == Part::kWord0 || part == Part::kWord1;
  const int shift = part == Part::kWord0   ? 0
                    : part == Part::kWord1 ? 16
                                           : 8 * static_cast<int>(part);
  const uint32_t bits = x >> shift & (word ? 0xffffu : 0xffu);
  if (!sign_extend) return bits;
  return word ? static_cast<uint32_t>(static_cast<int16_t>(bits))
              : static_cast<uint32_t>(static_cast<int8_t>(bits));
}

// A scalar operand's 32 bits, word 0 or 1 of it.
inline uint32_t ScalarWord(const Wave& w, const Operand& o, int word = 0) {
  if (o.kind == OperandKind::kScalar) return w.s[static_cast<size_t>(o.index + word)];
  if (word == 0) return o.value;
  return o.inline_integer && static_cast<int32_t>(o.value) < 0 ? ~0u : 0u;
}

// All lanes of operand `i`, register `word` of it. `space` is used where the register itself will not do.
inline const Lanes& Source(const Wave& w, const Decoded& d, int i, Lanes* space, int word = 0) {
  const Operand& o = d.operand[static_cast<size_t>(i)];
  const bool plain = !o.negate && !o.absolute && o.part == Part::kAll;
  if (o.kind == OperandKind::kVector) {
    const Lanes& reg = w.v[static_cast<size_t>(o.index + word)];
    if (plain) return reg;
    *space = reg;
  } else {
    space->fill(ScalarWord(w, o, word));
  }
  for (uint32_t& x : *space) {
    x = Select(x, o.part, o.sign_extend);
    if (o.absolute) x &= 0x7fffffffu;
    if (o.negate) x ^= 0x80000000u;
  }
  return *space;
}

// Writes a result to the active lanes of operand 0, register `word` of it.
inline void Store(Wave& w, const Decoded& d, const Lanes& result, int word = 0) {
  Lanes& to = w.v[static_cast<size_t>(d.operand[0].index + word)];
  const uint64_t exec = w.exec();
  if (d.destination == Part::kAll) {
    if (exec == ~0ull) {
      to = result;
      return;
    }
    for (size_t l = 0; l < kLanes; ++l) to[l] = exec >> l & 1 ? result[l] : to[l];
    return;
  }
  const bool word_part = d.destination == Part::kWord0 || d.destination == Part::kWord1;
  const int shift = d.destination == Part::kWord0   ? 0
                    : d.destination == Part::kWord1 ? 16
                                                    : 8 * static_cast<int>(d.destination);
  const uint32_t mask = (word_part ? 0xffffu : 0xffu) << shift;
  for (size_t l = 0; l < kLanes; ++l) {
    if ((exec >> l & 1) == 0) continue;
    to[l] = (d.preserve ? to[l] & ~mask : 0u) | (result[l] << shift & mask);
  }
}

template <class F>
void Unary(Wave& w, const Decoded& d, F f) {
  Lanes sa, result;
  const Lanes& a = Source(w, d, 1, &sa);
  for (size_t l = 0; l < kLanes; ++l) result[l] = f(a[l]);
  Store(w, d, result);
}
template <class F>
void Binary(Wave& w, const Decoded& d, F f) {
  Lanes sa, sb, result;
  const Lanes& a = Source(w, d, 1, &sa);
  const Lanes& b = Source(w, d, 2, &sb);
  for (size_t l = 0; l < kLanes; ++l) result[l] = f(a[l], b[l]);
  Store(w, d, result);
}
template <class F>
void Ternary(Wave& w, const Decoded& d, F f) {
  Lanes sa, sb, sc, result;
  const Lanes& a = Source(w, d, 1, &sa);
  const Lanes& b = Source(w, d, 2, &sb);
  const Lanes& c = Source(w, d, 3, &sc);
  for (size_t l = 0; l < kLanes; ++l) result[l] = f(a[l], b[l], c[l]);
  Store(w, d, result);
}

// 64-bit operands and results. Negation and absolute value are those of doubles.
inline uint64_t Wide(const Wave& w, const Decoded& d, int i, size_t lane) {
  const Operand& o = d.operand[static_cast<size_t>(i)];
  uint64_t x;
  if (o.kind == OperandKind::kVector) {
    x = w.v[o.index][lane] | static_cast<uint64_t>(w.v[o.index + 1u][lane]) << 32;
  } else {
    x = ScalarWord(w, o, 0) | static_cast<uint64_t>(ScalarWord(w, o, 1)) << 32;
    if (o.inline_float) x = AsBits64(static_cast<double>(AsFloat(o.value)));
    // A literal is the upper half of a double.
    const bool literal = o.kind == OperandKind::kConstant && !o.inline_float && !o.inline_integer;
    if (literal && d.name.find("_f64") != std::string::npos) x <<= 32;
  }
  if (o.absolute) x &= ~(1ull << 63);
  if (o.negate) x ^= 1ull << 63;
  return x;
}
template <class F>
void StoreWide(Wave& w, const Decoded& d, F f) {
  Lanes low, high;
  for (size_t l = 0; l < kLanes; ++l) {
    const uint64_t x = w.exec() >> l & 1 ? f(l) : 0;
    low[l] = static_cast<uint32_t>(x);
    high[l] = static_cast<uint32_t>(x >> 32);
  }
  Store(w, d, low, 0);
  Store(w, d, high, 1);
}

// A bit per lane, zero for lanes that are switched off.
template <class F>
uint64_t LaneMask(const Wave& w, F f) {
  uint64_t mask = 0;
  for (size_t l = 0; l < kLanes; ++l) mask |= static_cast<uint64_t>(f(l)) << l;
  return mask & w.exec();
}

inline bool IsSignalling(uint32_t x) {
  return (x & 0x7fffffffu) > 0x7f800000u && (x & 0x400000u) == 0;
}

}  // namespace whet::isa
