// Vector integer and bit arithmetic.
#include <algorithm>

#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

int32_t Signed(uint32_t x) { return static_cast<int32_t>(x); }
uint32_t Unsigned(int32_t x) { return static_cast<uint32_t>(x); }
int32_t Signed24(uint32_t x) { return static_cast<int32_t>(x << 8) >> 8; }
uint32_t Unsigned24(uint32_t x) { return x & 0xffffffu; }
uint32_t Word(uint32_t x) { return x & 0xffffu; }

uint32_t Field(uint32_t x, uint32_t shift, uint32_t width) {
  width &= 31;
  return width == 0 ? 0 : x >> (shift & 31) & ((1u << width) - 1);
}
uint32_t SignedField(uint32_t x, uint32_t shift, uint32_t width) {
  width &= 31;
  if (width == 0) return 0;
  const uint32_t bits = Field(x, shift, width);
  return bits >> (width - 1) & 1 ? bits | ~0u << width : bits;
}

// Each selector byte picks one of b's four bytes, then one of a's, or a constant.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(a) << 32 | b;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t s = selector >> (8 * i) & 255;
    uint32_t byte = 0;
    if (s >= 13) {
      byte = 0xff;
    } else if (s == 12) {
      byte = 0;
    } else if (s >= 8) {
      // The sign of word s - 8.
      byte = bytes >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
    } else {
      byte = static_cast<uint32_t>(bytes >> (8 * s)) & 255;
    }
    result |= byte << (8 * i);
  }
  return result;
}

// result = f(a, b, carry) for operands 2 and 3, with a carry out to operand 1.
template <class F>
void WithCarry(Wave& w, const Decoded& d, F f) {
  Lanes sa, sb, result;
  const Lanes& a = Source(w, d, 2, &sa);
  const Lanes& b = Source(w, d, 3, &sb);
  uint64_t carry_in = 0;
  if (d.operands > 4) {
    const Operand& o = d.operand[4];
    carry_in = o.kind == OperandKind::kScalar ? w.Pair(o.index) : 0;
  }
  uint64_t carry_out = 0;
  for (size_t l = 0; l < kLanes; ++l) {
    // The low word is the result, bit 32 the carry or borrow.
    const uint64_t wide = f(uint64_t{a[l]}, uint64_t{b[l]}, carry_in >> l & 1);
    result[l] = static_cast<uint32_t>(wide);
    carry_out |= (wide >> 32 & 1) << l;
  }
  Store(w, d, result);
  if (d.operand[1].kind == OperandKind::kScalar) {
    w.SetPair(d.operand[1].index, carry_out & w.exec());
  }
}

#define WHET_UNARY(name, expression)                                \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {     \
    Unary(w, d, [](uint32_t a) -> uint32_t { return expression; }); \
  }
#define WHET_BINARY(name, expression)                                            \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                  \
    Binary(w, d, [](uint32_t a, uint32_t b) -> uint32_t { return expression; }); \
  }
#define WHET_TERNARY(name, expression)                                                        \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                               \
    Ternary(w, d, [](uint32_t a, uint32_t b, uint32_t c) -> uint32_t { return expression; }); \
  }
#define WHET_CARRY(name, expression)                                                      \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                           \
    WithCarry(w, d, [](uint64_t a, uint64_t b, [[maybe_unused]] uint64_t c) -> uint64_t { \
      return expression;                                                                  \
    });                                                                                   \
  }

void AddWords(Handlers* handlers) {
  WHET_UNARY("v_mov_b32", a);
  WHET_UNARY("v_accvgpr_read_b32", a);
  WHET_UNARY("v_accvgpr_write_b32", a);
  WHET_UNARY("v_accvgpr_mov_b32", a);
  WHET_UNARY("v_not_b32", ~a);
  (*handlers)["v_bfrev_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Unary(w, d, [](uint32_t a) {
      uint32_t reversed = 0;
      for (int i = 0; i < 32; ++i) reversed = reversed << 1 | (a & 1), a >>= 1;
      return reversed;
    });
  };
  // With clamp, differences stop at zero and sums at the largest word.
  (*handlers)["v_add_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const bool clamp = d.clamp;
    Binary(w, d, [clamp](uint32_t a, uint32_t b) { return clamp && a + b < a ? ~0u : a + b; });
  };
  (*handlers)["v_sub_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const bool clamp = d.clamp;
    Binary(w, d, [clamp](uint32_t a, uint32_t b) { return clamp && b > a ? 0u : a - b; });
  };
  (*handlers)["v_subrev_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const bool clamp = d.clamp;
    Binary(w, d, [clamp](uint32_t a, uint32_t b) { return clamp && a > b ? 0u : b - a; });
  };
  WHET_BINARY("v_and_b32", a & b);
  WHET_BINARY("v_or_b32", a | b);
  WHET_BINARY("v_xor_b32", a ^ b);
  WHET_BINARY("v_lshlrev_b32", b << (a & 31));
  WHET_BINARY("v_lshrrev_b32", b >> (a & 31));
  WHET_BINARY("v_ashrrev_i32", Unsigned(Signed(b) >> (a & 31)));
  WHET_BINARY("v_max_i32", Unsigned(std::max(Signed(a), Signed(b))));
  WHET_BINARY("v_min_i32", Unsigned(std::min(Signed(a), Signed(b))));
  WHET_BINARY("v_max_u32", std::max(a, b));
  WHET_BINARY("v_min_u32", std::min(a, b));
  WHET_BINARY("v_mul_lo_u32", a * b);
  WHET_BINARY("v_mul_hi_u32", static_cast<uint32_t>(uint64_t{a} * b >> 32));
  WHET_BINARY("v_mul_hi_i32",
              static_cast<uint32_t>(static_cast<uint64_t>(int64_t{Signed(a)} * Signed(b)) >> 32));
  WHET_BINARY("v_mul_u32_u24", Unsigned24(a) * Unsigned24(b));
  WHET_BINARY("v_mul_i32_i24", Unsigned(Signed24(a)) * Unsigned(Signed24(b)));
  WHET_BINARY("v_mul_hi_i32_i24",
              Unsigned(static_cast<int32_t>(int64_t{Signed24(a)} * Signed24(b) >> 32)));
  WHET_BINARY("v_mul_hi_u32_u24",
              static_cast<uint32_t>(uint64_t{Unsigned24(a)} * Unsigned24(b) >> 32));
  WHET_TERNARY("v_mad_u32_u24", Unsigned24(a) * Unsigned24(b) + c);
  WHET_TERNARY("v_mad_i32_i24", Unsigned(Signed24(a)) * Unsigned(Signed24(b)) + c);
  WHET_TERNARY("v_add3_u32", a + b + c);
  WHET_TERNARY("v_or3_b32", a | b | c);
  WHET_TERNARY("v_and_or_b32", (a & b) | c);
  WHET_TERNARY("v_lshl_add_u32", (a << (b & 31)) + c);
  WHET_TERNARY("v_lshl_or_b32", (a << (b & 31)) | c);
  WHET_TERNARY("v_add_lshl_u32", (a + b) << (c & 31));
  WHET_TERNARY("v_xad_u32", (a ^ b) + c);
  WHET_TERNARY("v_bfe_u32", Field(a, b, c));
  WHET_TERNARY("v_bfe_i32", SignedField(a, b, c));
  WHET_TERNARY("v_bfi_b32", (a & b) | (~a & c));
  WHET_TERNARY("v_alignbit_b32",
               static_cast<uint32_t>((static_cast<uint64_t>(a) << 32 | b) >> (c & 31)));
  WHET_TERNARY("v_alignbyte_b32",
               static_cast<uint32_t>((static_cast<uint64_t>(a) << 32 | b) >> (8 * (c & 3))));
  WHET_TERNARY("v_perm_b32", Permute(a, b, c));
  WHET_TERNARY("v_max3_i32", Unsigned(std::max({Signed(a), Signed(b), Signed(c)})));
  WHET_TERNARY("v_max3_u32", std::max({a, b, c}));
  WHET_TERNARY("v_min3_u32", std::min({a, b, c}));
  WHET_TERNARY("v_med3_i32",
               Unsigned(std::max(std::min(Signed(a), Signed(b)),
                                 std::min(std::max(Signed(a), Signed(b)), Signed(c)))));
  (*handlers)["v_bitop3_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    const auto table = static_cast<uint32_t>(d.bitop);
    Ternary(w, d, [table](uint32_t a, uint32_t b, uint32_t c) {
      uint32_t result = 0;
      for (uint32_t i = 0; i < 8; ++i) {
        if ((table >> i & 1) == 0) continue;
        result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
      }
      return result;
    });
  };
  (*handlers)["v_cndmask_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb, result;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    const uint64_t mask = w.Pair(d.operand[3].index);
    for (size_t l = 0; l < kLanes; ++l) result[l] = mask >> l & 1 ? b[l] : a[l];
    Store(w, d, result);
  };
}

// Results of 16 bits clear the upper half.
void AddShorts(Handlers* handlers) {
  WHET_BINARY("v_add_u16", Word(a + b));
  WHET_BINARY("v_sub_u16", Word(a - b));
  WHET_BINARY("v_mul_lo_u16", Word(Word(a) * Word(b)));
  WHET_BINARY("v_lshlrev_b16", Word(Word(b) << (a & 15)));
  WHET_BINARY("v_lshrrev_b16", Word(b) >> (a & 15));
  WHET_BINARY("v_ashrrev_i16",
              Word(Unsigned(static_cast<int32_t>(static_cast<int16_t>(b)) >> (a & 15))));
  WHET_BINARY("v_max_i16",
              Word(Unsigned(std::max<int32_t>(static_cast<int16_t>(a), static_cast<int16_t>(b)))));
  WHET_BINARY("v_min_i16",
              Word(Unsigned(std::min<int32_t>(static_cast<int16_t>(a), static_cast<int16_t>(b)))));
  WHET_BINARY("v_max_u16", std::max(Word(a), Word(b)));
  WHET_BINARY("v_min_u16", std::min(Word(a), Word(b)));
}

void AddWide(Handlers* handlers) {
  WHET_CARRY("v_add_co_u32", a + b);
  WHET_CARRY("v_addc_co_u32", a + b + c);
  WHET_CARRY("v_sub_co_u32", a - b);
  WHET_CARRY("v_subrev_co_u32", b - a);
  WHET_CARRY("v_subb_co_u32", a - b - c);
  WHET_CARRY("v_subbrev_co_u32", b - a - c);
  (*handlers)["v_mov_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    StoreWide(w, d, [&](size_t l) { return Wide(w, d, 1, l); });
  };
  (*handlers)["v_lshl_add_u64"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sb;
    const Lanes b = Source(w, d, 2, &sb);
    StoreWide(w, d, [&](size_t l) { return (Wide(w, d, 1, l) << (b[l] & 7)) + Wide(w, d, 3, l); });
  };
  (*handlers)["v_lshlrev_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa;
    const Lanes a = Source(w, d, 1, &sa);
    StoreWide(w, d, [&](size_t l) { return Wide(w, d, 2, l) << (a[l] & 63); });
  };
  (*handlers)["v_lshrrev_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa;
    const Lanes a = Source(w, d, 1, &sa);
    StoreWide(w, d, [&](size_t l) { return Wide(w, d, 2, l) >> (a[l] & 63); });
  };
  (*handlers)["v_ashrrev_i64"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa;
    const Lanes a = Source(w, d, 1, &sa);
    StoreWide(w, d, [&](size_t l) {
      return static_cast<uint64_t>(static_cast<int64_t>(Wide(w, d, 2, l)) >> (a[l] & 63));
    });
  };
  (*handlers)["v_mad_u64_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb;
    const Lanes a = Source(w, d, 2, &sa), b = Source(w, d, 3, &sb);
    uint64_t carry = 0;
    StoreWide(w, d, [&](size_t l) {
      uint64_t sum;
      carry |= static_cast<uint64_t>(
                   __builtin_add_overflow(uint64_t{a[l]} * b[l], Wide(w, d, 4, l), &sum))
               << l;
      return sum;
    });
    w.SetPair(d.operand[1].index, carry & w.exec());
  };
  (*handlers)["v_mad_i64_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb;
    const Lanes a = Source(w, d, 2, &sa), b = Source(w, d, 3, &sb);
    StoreWide(w, d, [&](size_t l) {
      return static_cast<uint64_t>(int64_t{Signed(a[l])} * Signed(b[l])) + Wide(w, d, 4, l);
    });
    w.SetPair(d.operand[1].index, 0);
  };
}

}  // namespace

void AddIntegerHandlers(Handlers* handlers) {
  AddWords(handlers);
  AddShorts(handlers);
  AddWide(handlers);
}

}  // namespace whet::isa
