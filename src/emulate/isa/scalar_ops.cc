// The scalar unit: arithmetic, comparisons, masks, branches, waits.
#include <algorithm>
#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

// Operands by how many come before: 0 is the destination.
uint32_t In(const Wave& w, const Decoded& d, size_t i) { return ScalarWord(w, d.operand[i]); }
uint64_t In64(const Wave& w, const Decoded& d, size_t i) {
  return ScalarWord(w, d.operand[i], 0) | static_cast<uint64_t>(ScalarWord(w, d.operand[i], 1))
                                              << 32;
}
void Out(Wave& w, const Decoded& d, uint32_t value) { w.s[d.operand[0].index] = value; }
void Out64(Wave& w, const Decoded& d, uint64_t value) { w.SetPair(d.operand[0].index, value); }

int32_t Signed(uint32_t x) { return static_cast<int32_t>(x); }
uint32_t Unsigned(int32_t x) { return static_cast<uint32_t>(x); }
// The 16-bit constant of s_movk_i32 and kin, which the listing prints as it is encoded.
int32_t Short(uint32_t x) { return static_cast<int16_t>(x & 0xffff); }

template <class F>
void Arithmetic(Wave& w, const Decoded& d, F f) {
  Out(w, d, f(In(w, d, 1), In(w, d, 2)));
}
template <class F>
void Logic32(Wave& w, const Decoded& d, F f) {
  const uint32_t value = f(In(w, d, 1), In(w, d, 2));
  Out(w, d, value);
  w.scc = value != 0;
}
template <class F>
void Logic64(Wave& w, const Decoded& d, F f) {
  const uint64_t value = f(In64(w, d, 1), In64(w, d, 2));
  Out64(w, d, value);
  w.scc = value != 0;
}
// The bits of `from` that s_bfe's other operand tells: the first in its bits 0 to 5, how many in 16 to 22.
uint64_t Field(uint64_t from, uint64_t which, bool sign_extend) {
  const uint64_t width = std::min<uint64_t>(which >> 16 & 127, 64);
  if (width == 0) return 0;
  const uint64_t top = from >> (which & 63) << (64 - width);
  return sign_extend ? static_cast<uint64_t>(static_cast<int64_t>(top) >> (64 - width))
                     : top >> (64 - width);
}
// exec = f(source, exec), the old exec is kept.
template <class F>
void SaveExec(Wave& w, const Decoded& d, F f) {
  const uint64_t old = w.exec();
  const uint64_t value = f(In64(w, d, 1), old);
  Out64(w, d, old);
  w.SetPair(kExec, value);
  w.scc = value != 0;
}
void Branch(Wave& w, const Decoded& d, bool taken) {
  if (taken) w.pc = d.target;
}

void WaitCount(Machine& m, Wave& w, const Decoded& d) {
  const unsigned bits = static_cast<unsigned>(d.immediate);
  const unsigned vector = (bits & 15) | (bits >> 14 & 3) << 4;
  WaitVectorMemory(m, w, vector);
  WaitLocal(m, w, bits >> 8 & 15);
}

#define WHET_BINARY(name, expression)                                                \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                      \
    Arithmetic(w, d, [](uint32_t a, uint32_t b) -> uint32_t { return expression; }); \
  }
#define WHET_LOGIC32(name, expression)                                            \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                   \
    Logic32(w, d, [](uint32_t a, uint32_t b) -> uint32_t { return expression; }); \
  }
#define WHET_LOGIC64(name, expression)                                            \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                   \
    Logic64(w, d, [](uint64_t a, uint64_t b) -> uint64_t { return expression; }); \
  }
#define WHET_SAVE_EXEC(name, expression)                                              \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                       \
    SaveExec(w, d, [](uint64_t a, uint64_t exec) -> uint64_t { return expression; }); \
  }
#define WHET_COMPARE(name, expression)                          \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) { \
    const uint32_t a = In(w, d, 0);                             \
    const uint32_t b = In(w, d, 1);                             \
    w.scc = expression;                                         \
  }
#define WHET_SHIFTED_ADD(name, bits)                                      \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {           \
    const uint64_t sum = (uint64_t{In(w, d, 1)} << (bits)) + In(w, d, 2); \
    Out(w, d, static_cast<uint32_t>(sum));                                \
    w.scc = sum >> 32 != 0;                                               \
  }
#define WHET_BRANCH(name, condition) \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) { Branch(w, d, condition); }

void AddArithmetic(Handlers* handlers) {
  (*handlers)["s_add_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t sum = uint64_t{In(w, d, 1)} + In(w, d, 2);
    Out(w, d, static_cast<uint32_t>(sum));
    w.scc = sum >> 32 != 0;
  };
  (*handlers)["s_addc_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t sum = uint64_t{In(w, d, 1)} + In(w, d, 2) + (w.scc ? 1 : 0);
    Out(w, d, static_cast<uint32_t>(sum));
    w.scc = sum >> 32 != 0;
  };
  WHET_SHIFTED_ADD("s_lshl1_add_u32", 1);
  WHET_SHIFTED_ADD("s_lshl2_add_u32", 2);
  WHET_SHIFTED_ADD("s_lshl3_add_u32", 3);
  WHET_SHIFTED_ADD("s_lshl4_add_u32", 4);
  (*handlers)["s_sub_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint32_t a = In(w, d, 1), b = In(w, d, 2);
    Out(w, d, a - b);
    w.scc = b > a;
  };
  (*handlers)["s_subb_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t a = In(w, d, 1), b = uint64_t{In(w, d, 2)} + (w.scc ? 1 : 0);
    Out(w, d, static_cast<uint32_t>(a - b));
    w.scc = b > a;
  };
  (*handlers)["s_add_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int64_t sum = int64_t{Signed(In(w, d, 1))} + Signed(In(w, d, 2));
    Out(w, d, static_cast<uint32_t>(sum));
    w.scc = sum != static_cast<int32_t>(sum);
  };
  (*handlers)["s_sub_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int64_t sum = int64_t{Signed(In(w, d, 1))} - Signed(In(w, d, 2));
    Out(w, d, static_cast<uint32_t>(sum));
    w.scc = sum != static_cast<int32_t>(sum);
  };
  (*handlers)["s_addk_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int64_t sum = int64_t{Signed(In(w, d, 0))} + Short(In(w, d, 1));
    Out(w, d, static_cast<uint32_t>(sum));
    w.scc = sum != static_cast<int32_t>(sum);
  };
  (*handlers)["s_mulk_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, In(w, d, 0) * Unsigned(Short(In(w, d, 1))));
  };
  (*handlers)["s_movk_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, Unsigned(Short(In(w, d, 1))));
  };
  WHET_BINARY("s_mul_i32", a * b);
  WHET_BINARY("s_mul_hi_u32", static_cast<uint32_t>(uint64_t{a} * b >> 32));
  WHET_BINARY("s_mul_hi_i32",
              static_cast<uint32_t>(static_cast<uint64_t>(int64_t{Signed(a)} * Signed(b)) >> 32));
  (*handlers)["s_max_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int32_t a = Signed(In(w, d, 1)), b = Signed(In(w, d, 2));
    Out(w, d, Unsigned(std::max(a, b)));
    w.scc = a >= b;
  };
  (*handlers)["s_min_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int32_t a = Signed(In(w, d, 1)), b = Signed(In(w, d, 2));
    Out(w, d, Unsigned(std::min(a, b)));
    w.scc = a <= b;
  };
  (*handlers)["s_max_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint32_t a = In(w, d, 1), b = In(w, d, 2);
    Out(w, d, std::max(a, b));
    w.scc = a >= b;
  };
  (*handlers)["s_min_u32"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint32_t a = In(w, d, 1), b = In(w, d, 2);
    Out(w, d, std::min(a, b));
    w.scc = a <= b;
  };
  (*handlers)["s_abs_i32"] = [](Machine&, Wave& w, const Decoded& d) {
    const int32_t a = Signed(In(w, d, 1));
    Out(w, d, a < 0 ? 0u - Unsigned(a) : Unsigned(a));
    w.scc = In(w, d, 0) != 0;
  };
}

void AddLogic(Handlers* handlers) {
  WHET_LOGIC32("s_and_b32", a & b);
  WHET_LOGIC32("s_or_b32", a | b);
  WHET_LOGIC32("s_xor_b32", a ^ b);
  WHET_LOGIC32("s_andn2_b32", a & ~b);
  WHET_LOGIC32("s_orn2_b32", a | ~b);
  WHET_LOGIC32("s_lshl_b32", a << (b & 31));
  WHET_LOGIC32("s_lshr_b32", a >> (b & 31));
  WHET_LOGIC32("s_ashr_i32", Unsigned(Signed(a) >> (b & 31)));
  WHET_LOGIC32("s_bfe_u32", (b >> 16 & 127) == 0 ? 0
                            : (b >> 16 & 127) >= 32
                                ? a >> (b & 31)
                                : a >> (b & 31) & ((1u << (b >> 16 & 127)) - 1));
  WHET_LOGIC32("s_bfe_i32",
               (b >> 16 & 127) == 0
                   ? 0
                   : Unsigned(Signed(a >> (b & 31) << (32 - std::min(32u, b >> 16 & 127))) >>
                              (32 - std::min(32u, b >> 16 & 127))));
  WHET_LOGIC32("s_xnor_b32", ~(a ^ b));
  WHET_LOGIC64("s_bfe_u64", Field(a, b, false));
  WHET_LOGIC64("s_bfe_i64", Field(a, b, true));
  WHET_LOGIC64("s_and_b64", a & b);
  WHET_LOGIC64("s_or_b64", a | b);
  WHET_LOGIC64("s_xor_b64", a ^ b);
  WHET_LOGIC64("s_andn2_b64", a & ~b);
  WHET_LOGIC64("s_orn2_b64", a | ~b);
  WHET_LOGIC64("s_nor_b64", ~(a | b));
  WHET_LOGIC64("s_lshl_b64", a << (b & 63));
  WHET_LOGIC64("s_lshr_b64", a >> (b & 63));
  WHET_LOGIC64("s_ashr_i64", static_cast<uint64_t>(static_cast<int64_t>(a) >> (b & 63)));
  WHET_SAVE_EXEC("s_and_saveexec_b64", a & exec);
  WHET_SAVE_EXEC("s_or_saveexec_b64", a | exec);
  WHET_SAVE_EXEC("s_xor_saveexec_b64", a ^ exec);
  WHET_SAVE_EXEC("s_andn2_saveexec_b64", a & ~exec);
  WHET_SAVE_EXEC("s_andn1_saveexec_b64", ~a & exec);
  (*handlers)["s_mov_b32"] = [](Machine&, Wave& w, const Decoded& d) { Out(w, d, In(w, d, 1)); };
  (*handlers)["s_mov_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    Out64(w, d, In64(w, d, 1));
  };
  (*handlers)["s_not_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, ~In(w, d, 1));
    w.scc = In(w, d, 0) != 0;
  };
  (*handlers)["s_not_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t value = ~In64(w, d, 1);
    Out64(w, d, value);
    w.scc = value != 0;
  };
  (*handlers)["s_brev_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    uint32_t x = In(w, d, 1), reversed = 0;
    for (int i = 0; i < 32; ++i) reversed = reversed << 1 | (x & 1), x >>= 1;
    Out(w, d, reversed);
  };
  (*handlers)["s_bcnt1_i32_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    const auto count = static_cast<uint32_t>(std::popcount(In64(w, d, 1)));
    Out(w, d, count);
    w.scc = count != 0;
  };
  (*handlers)["s_ff1_i32_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t x = In64(w, d, 1);
    Out(w, d, x == 0 ? ~0u : static_cast<uint32_t>(std::countr_zero(x)));
  };
  (*handlers)["s_sext_i32_i8"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, Unsigned(static_cast<int8_t>(In(w, d, 1))));
  };
  (*handlers)["s_sext_i32_i16"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, Unsigned(static_cast<int16_t>(In(w, d, 1))));
  };
  (*handlers)["s_bitset0_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    w.s[d.operand[0].index] &= ~(1u << (In(w, d, 1) & 31));
  };
  (*handlers)["s_bitset1_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    w.s[d.operand[0].index] |= 1u << (In(w, d, 1) & 31);
  };
  (*handlers)["s_cselect_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, w.scc ? In(w, d, 1) : In(w, d, 2));
  };
  (*handlers)["s_cselect_b64"] = [](Machine&, Wave& w, const Decoded& d) {
    Out64(w, d, w.scc ? In64(w, d, 1) : In64(w, d, 2));
  };
  (*handlers)["s_pack_ll_b32_b16"] = [](Machine&, Wave& w, const Decoded& d) {
    Out(w, d, (In(w, d, 1) & 0xffff) | In(w, d, 2) << 16);
  };
}

void AddComparisons(Handlers* handlers) {
  WHET_COMPARE("s_cmp_eq_i32", a == b);
  WHET_COMPARE("s_cmp_eq_u32", a == b);
  WHET_COMPARE("s_cmp_lg_i32", a != b);
  WHET_COMPARE("s_cmp_lg_u32", a != b);
  WHET_COMPARE("s_cmp_gt_i32", Signed(a) > Signed(b));
  WHET_COMPARE("s_cmp_ge_i32", Signed(a) >= Signed(b));
  WHET_COMPARE("s_cmp_lt_i32", Signed(a) < Signed(b));
  WHET_COMPARE("s_cmp_le_i32", Signed(a) <= Signed(b));
  WHET_COMPARE("s_cmp_gt_u32", a > b);
  WHET_COMPARE("s_cmp_ge_u32", a >= b);
  WHET_COMPARE("s_cmp_lt_u32", a < b);
  WHET_COMPARE("s_cmp_le_u32", a <= b);
  WHET_COMPARE("s_cmpk_eq_i32", Signed(a) == Short(b));
  WHET_COMPARE("s_cmpk_lg_i32", Signed(a) != Short(b));
  WHET_COMPARE("s_cmpk_gt_i32", Signed(a) > Short(b));
  WHET_COMPARE("s_cmpk_ge_i32", Signed(a) >= Short(b));
  WHET_COMPARE("s_cmpk_lt_i32", Signed(a) < Short(b));
  WHET_COMPARE("s_cmpk_le_i32", Signed(a) <= Short(b));
  WHET_COMPARE("s_cmpk_eq_u32", a == (b & 0xffff));
  WHET_COMPARE("s_cmpk_lg_u32", a != (b & 0xffff));
  WHET_COMPARE("s_cmpk_gt_u32", a > (b & 0xffff));
  WHET_COMPARE("s_cmpk_ge_u32", a >= (b & 0xffff));
  WHET_COMPARE("s_cmpk_lt_u32", a < (b & 0xffff));
  WHET_COMPARE("s_cmpk_le_u32", a <= (b & 0xffff));
  WHET_COMPARE("s_bitcmp0_b32", (a >> (b & 31) & 1) == 0);
  WHET_COMPARE("s_bitcmp1_b32", (a >> (b & 31) & 1) == 1);
  (*handlers)["s_cmp_eq_u64"] = [](Machine&, Wave& w, const Decoded& d) {
    w.scc = In64(w, d, 0) == In64(w, d, 1);
  };
  (*handlers)["s_cmp_lg_u64"] = [](Machine&, Wave& w, const Decoded& d) {
    w.scc = In64(w, d, 0) != In64(w, d, 1);
  };
}

}  // namespace

void AddScalarHandlers(Handlers* handlers) {
  AddArithmetic(handlers);
  AddLogic(handlers);
  AddComparisons(handlers);
  WHET_BRANCH("s_branch", true);
  WHET_BRANCH("s_cbranch_scc0", !w.scc);
  WHET_BRANCH("s_cbranch_scc1", w.scc);
  WHET_BRANCH("s_cbranch_vccz", w.Pair(kVcc) == 0);
  WHET_BRANCH("s_cbranch_vccnz", w.Pair(kVcc) != 0);
  WHET_BRANCH("s_cbranch_execz", w.exec() == 0);
  WHET_BRANCH("s_cbranch_execnz", w.exec() != 0);
  (*handlers)["s_waitcnt"] = WaitCount;
  (*handlers)["s_barrier"] = [](Machine&, Wave& w, const Decoded&) {
    w.state = Wave::State::kAtBarrier;
  };
  (*handlers)["s_endpgm"] = [](Machine& m, Wave& w, const Decoded&) {
    for (const Delivery& delivery : w.vector_memory) {
      if (delivery.kind == Delivery::Kind::kLds) {
        m.Find(w, "ends while a load to LDS is in flight");
      }
    }
    w.state = Wave::State::kEnded;
  };
  for (const char* name : {"s_nop", "s_setprio", "s_sleep", "s_icache_inv", "s_dcache_wb",
                           "buffer_inv", "buffer_wbl2", "buffer_wbinvl1_vol", "s_sethalt"}) {
    (*handlers)[name] = [](Machine&, Wave&, const Decoded&) {};
  }
  (*handlers)["s_trap"] = [](Machine& m, Wave& w, const Decoded&) { m.Fail(w, "reaches a trap"); };
}

}  // namespace whet::isa
