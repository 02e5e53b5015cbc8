// Vector arithmetic on floats, single and packed in pairs. Denormals are kept, as the kernels' descriptors ask for; the approximations
// (exp, log, rcp, rsq, sqrt) are rounded from double precision and know no denormals, as documented for them.
#include <cmath>
#include <limits>

#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

constexpr float kSmallestNormal = 1.17549435e-38f;
constexpr uint32_t kQuiet = 0x400000u;

float Flush(float x) { return std::fabs(x) < kSmallestNormal ? std::copysign(0.0f, x) : x; }
float Approximate(double x) { return Flush(static_cast<float>(x)); }

// IEEE mode quietens a signalling operand; else a NaN loses against a number.
uint32_t Max(uint32_t a, uint32_t b) {
  if (IsSignalling(a)) return a | kQuiet;
  if (IsSignalling(b)) return b | kQuiet;
  const float x = AsFloat(a), y = AsFloat(b);
  if (x != x) return b;
  if (y != y) return a;
  if (x == y) return a & b;  // +0 above -0
  return x > y ? a : b;
}
uint32_t Min(uint32_t a, uint32_t b) {
  if (IsSignalling(a)) return a | kQuiet;
  if (IsSignalling(b)) return b | kQuiet;
  const float x = AsFloat(a), y = AsFloat(b);
  if (x != x) return b;
  if (y != y) return a;
  if (x == y) return a | b;
  return x < y ? a : b;
}
uint32_t Maximum(uint32_t a, uint32_t b) {
  const float x = AsFloat(a), y = AsFloat(b);
  if (x != x) return a | kQuiet;
  if (y != y) return b | kQuiet;
  return Max(a, b);
}
uint32_t Minimum(uint32_t a, uint32_t b) {
  const float x = AsFloat(a), y = AsFloat(b);
  if (x != x) return a | kQuiet;
  if (y != y) return b | kQuiet;
  return Min(a, b);
}
uint32_t Median(uint32_t a, uint32_t b, uint32_t c) {
  if (AsFloat(a) != AsFloat(a) || AsFloat(b) != AsFloat(b) || AsFloat(c) != AsFloat(c)) {
    return Min(Min(a, b), c);
  }
  return Max(Min(a, b), Min(Max(a, b), c));
}

int Exponent(uint32_t x) { return static_cast<int>(x >> 23 & 255); }
bool Denormal(float x) { return x != 0 && std::fabs(x) < kSmallestNormal; }

// What v_div_scale makes of `x`, one of denominator and numerator, so that no step of a division leaves the range of floats.
uint32_t DivideScale(uint32_t x, uint32_t denominator, uint32_t numerator, bool* scaled) {
  const float d = AsFloat(denominator), n = AsFloat(numerator), v = AsFloat(x);
  *scaled = false;
  if (n == 0 || d == 0) return 0x7fc00000u;
  if (Exponent(numerator) - Exponent(denominator) >= 96) {
    *scaled = true;
    return x == denominator ? AsBits(std::ldexp(v, 64)) : x;
  }
  if (Denormal(d)) return AsBits(std::ldexp(v, 64));
  const bool inverse = Denormal(static_cast<float>(1.0 / static_cast<double>(d)));
  const bool quotient =
      Denormal(static_cast<float>(static_cast<double>(n) / static_cast<double>(d)));
  if (inverse && quotient) {
    *scaled = true;
    return x == denominator ? AsBits(std::ldexp(v, 64)) : x;
  }
  if (inverse) return AsBits(std::ldexp(v, -64));
  if (quotient) {
    *scaled = true;
    return x == numerator ? AsBits(std::ldexp(v, 64)) : x;
  }
  if (Exponent(numerator) <= 23) return AsBits(std::ldexp(v, 64));
  return x;
}

uint32_t DivideFixup(uint32_t quotient, uint32_t denominator, uint32_t numerator) {
  const uint32_t sign = (denominator ^ numerator) & 0x80000000u;
  const float d = AsFloat(denominator), n = AsFloat(numerator);
  if (n != n) return numerator | kQuiet;
  if (d != d) return denominator | kQuiet;
  if ((d == 0 && n == 0) || (std::isinf(d) && std::isinf(n))) return 0xffc00000u;
  if (d == 0 || std::isinf(n)) return sign | 0x7f800000u;
  if (std::isinf(d) || n == 0) return sign;
  if (Exponent(numerator) - Exponent(denominator) < -150) return sign;
  return sign | (quotient & 0x7fffffffu);
}

// The half of packed operand `i` that op_sel (for the lower result) or op_sel_hi (for the upper one) picks.
const Lanes& Half(const Wave& w, const Decoded& d, int i, bool high_result, Lanes* space) {
  const int bit = i - 1;
  const int word = (high_result ? d.op_sel_hi : d.op_sel) >> bit & 1;
  const bool negate = ((high_result ? d.neg_hi : d.neg_lo) >> bit & 1) != 0;
  const Lanes& lanes = Source(w, d, i, space, word);
  if (!negate) return lanes;
  if (&lanes != space) *space = lanes;
  for (uint32_t& x : *space) x ^= 0x80000000u;
  return *space;
}

template <int kOperands, class F>
void Packed(Wave& w, const Decoded& d, F f) {
  Lanes result[2];
  for (int half = 0; half < 2; ++half) {
    Lanes sa, sb, sc;
    const Lanes& a = Half(w, d, 1, half != 0, &sa);
    const Lanes& b = Half(w, d, 2, half != 0, &sb);
    const Lanes& c = kOperands == 3 ? Half(w, d, 3, half != 0, &sc) : b;
    for (size_t l = 0; l < kLanes; ++l) {
      result[half][l] = AsBits(f(AsFloat(a[l]), AsFloat(b[l]), AsFloat(c[l])));
    }
  }
  Store(w, d, result[0], 0);
  Store(w, d, result[1], 1);
}

#define WHET_FLOAT1(name, expression)                           \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) { \
    Unary(w, d, [](uint32_t bits) {                             \
      const float a = AsFloat(bits);                            \
      return AsBits(expression);                                \
    });                                                         \
  }
#define WHET_FLOAT2(name, expression)                           \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) { \
    Binary(w, d, [](uint32_t bits_a, uint32_t bits_b) {         \
      const float a = AsFloat(bits_a), b = AsFloat(bits_b);     \
      return AsBits(expression);                                \
    });                                                         \
  }
#define WHET_FLOAT3(name, expression)                                            \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                  \
    Ternary(w, d, [](uint32_t bits_a, uint32_t bits_b, uint32_t bits_c) {        \
      const float a = AsFloat(bits_a), b = AsFloat(bits_b), c = AsFloat(bits_c); \
      return AsBits(expression);                                                 \
    });                                                                          \
  }
#define WHET_BITS2(name, f)                                       \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {   \
    Binary(w, d, [](uint32_t a, uint32_t b) { return f(a, b); }); \
  }
#define WHET_BITS3(name, expression)                                              \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                   \
    Ternary(w, d, [](uint32_t a, uint32_t b, uint32_t c) { return expression; }); \
  }

void AddDivision(Handlers* handlers) {
  (*handlers)["v_div_scale_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb, sc, result;
    const Lanes& x = Source(w, d, 2, &sa);
    const Lanes& denominator = Source(w, d, 3, &sb);
    const Lanes& numerator = Source(w, d, 4, &sc);
    uint64_t mask = 0;
    for (size_t l = 0; l < kLanes; ++l) {
      bool scaled = false;
      result[l] = DivideScale(x[l], denominator[l], numerator[l], &scaled);
      mask |= static_cast<uint64_t>(scaled) << l;
    }
    Store(w, d, result);
    w.SetPair(d.operand[1].index, mask & w.exec());
  };
  (*handlers)["v_div_fmas_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb, sc, result;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    const Lanes& c = Source(w, d, 3, &sc);
    const uint64_t vcc = w.Pair(kVcc);
    for (size_t l = 0; l < kLanes; ++l) {
      float sum = std::fma(AsFloat(a[l]), AsFloat(b[l]), AsFloat(c[l]));
      if (vcc >> l & 1) sum = std::ldexp(sum, Exponent(c[l]) > 127 ? 64 : -64);
      result[l] = AsBits(sum);
    }
    Store(w, d, result);
  };
  WHET_BITS3("v_div_fixup_f32", DivideFixup(a, b, c));
}

}  // namespace

void AddFloatHandlers(Handlers* handlers) {
  WHET_FLOAT2("v_add_f32", a + b);
  WHET_FLOAT2("v_sub_f32", a - b);
  WHET_FLOAT2("v_subrev_f32", b - a);
  WHET_FLOAT2("v_mul_f32", a * b);
  WHET_BITS2("v_max_f32", Max);
  WHET_BITS2("v_min_f32", Min);
  WHET_FLOAT3("v_fma_f32", std::fma(a, b, c));
  WHET_FLOAT3("v_fmamk_f32", std::fma(a, b, c));
  WHET_FLOAT3("v_fmaak_f32", std::fma(a, b, c));
  WHET_FLOAT3("v_mad_f32", a * b + c);
  (*handlers)["v_fmac_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    const Lanes old = w.v[d.operand[0].index];
    Lanes sa, sb, result;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    for (size_t l = 0; l < kLanes; ++l) {
      result[l] = AsBits(std::fma(AsFloat(a[l]), AsFloat(b[l]), AsFloat(old[l])));
    }
    Store(w, d, result);
  };
  WHET_BITS3("v_max3_f32", Max(Max(a, b), c));
  WHET_BITS3("v_min3_f32", Min(Min(a, b), c));
  WHET_BITS3("v_maximum3_f32", Maximum(Maximum(a, b), c));
  WHET_BITS3("v_minimum3_f32", Minimum(Minimum(a, b), c));
  WHET_BITS3("v_med3_f32", Median(a, b, c));
  WHET_FLOAT1("v_exp_f32", Approximate(std::exp2(static_cast<double>(a))));
  WHET_FLOAT1("v_log_f32", Approximate(std::log2(static_cast<double>(Flush(a)))));
  WHET_FLOAT1("v_rcp_f32", Approximate(1.0 / static_cast<double>(Flush(a))));
  WHET_FLOAT1("v_rcp_iflag_f32", Approximate(1.0 / static_cast<double>(Flush(a))));
  WHET_FLOAT1("v_rsq_f32", Approximate(1.0 / std::sqrt(static_cast<double>(Flush(a)))));
  WHET_FLOAT1("v_sqrt_f32", Approximate(std::sqrt(static_cast<double>(Flush(a)))));
  WHET_FLOAT1("v_ceil_f32", std::ceil(a));
  WHET_FLOAT1("v_floor_f32", std::floor(a));
  WHET_FLOAT1("v_trunc_f32", std::trunc(a));
  WHET_FLOAT1("v_rndne_f32", std::nearbyint(a));
  WHET_FLOAT1("v_fract_f32", a - std::floor(a));
  (*handlers)["v_ldexp_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Binary(w, d, [](uint32_t a, uint32_t b) {
      return AsBits(std::ldexp(AsFloat(a), static_cast<int32_t>(b)));
    });
  };
  AddDivision(handlers);
  (*handlers)["v_pk_fma_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Packed<3>(w, d, [](float a, float b, float c) { return std::fma(a, b, c); });
  };
  (*handlers)["v_pk_mul_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Packed<2>(w, d, [](float a, float b, float) { return a * b; });
  };
  (*handlers)["v_pk_add_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Packed<2>(w, d, [](float a, float b, float) { return a + b; });
  };
  (*handlers)["v_pk_mov_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb;
    const Lanes a = Source(w, d, 1, &sa, d.op_sel & 1);
    const Lanes b = Source(w, d, 2, &sb, d.op_sel >> 1 & 1);
    Store(w, d, a, 0);
    Store(w, d, b, 1);
  };
}

}  // namespace whet::isa
