// Conversions between number formats, and arithmetic in double precision.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"
#include "src/emulate/number_formats.h"

namespace whet::isa {
namespace {

using emulator::EncodeFloat;
using emulator::NumberFormat;

uint32_t ToInteger(float x) {
  if (x != x) return 0;
  const double clamped = std::clamp(static_cast<double>(x), -2147483648.0, 2147483647.0);
  return static_cast<uint32_t>(static_cast<int32_t>(clamped));
}
uint32_t ToUnsigned(float x) {
  if (!(x > 0)) return 0;
  return static_cast<uint32_t>(std::min(static_cast<double>(x), 4294967295.0));
}
// The rounding of v_cvt_pk_u8_f32 is not documented; the kernels assume this too.
uint32_t ToByte(float x) {
  if (!(x > 0)) return 0;
  return static_cast<uint32_t>(std::nearbyint(std::min(x, 255.0f)));
}
uint32_t ToNormalised(float x) {
  if (!(x > 0)) return 0;
  return static_cast<uint32_t>(std::nearbyint(std::min(x, 1.0f) * 65535.0f));
}
uint32_t ToBf16(uint32_t x) {
  if ((x & 0x7fffffffu) > 0x7f800000u) return x >> 16 | 0x40u;
  return (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
}

// Two bytes into one half of the destination, the other stays.
template <class F>
void PackBytes(Machine& m, Wave& w, const Decoded& d, bool high, F f) {
  const Lanes old = w.v[d.operand[0].index];
  Lanes sa, sb, result;
  const Lanes& a = Source(w, d, 1, &sa);
  const Lanes& b = Source(w, d, 2, &sb);
  const NumberFormat format = m.fnuz ? NumberFormat::kE4m3Fnuz : NumberFormat::kE4m3;
  for (size_t l = 0; l < kLanes; ++l) {
    const uint32_t pair =
        EncodeFloat(format, f(AsFloat(a[l]), l)) | EncodeFloat(format, f(AsFloat(b[l]), l)) << 8;
    result[l] = high ? (old[l] & 0xffffu) | pair << 16 : (old[l] & 0xffff0000u) | pair;
  }
  Store(w, d, result);
}

#define WHET_TO(name, expression)                                   \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {     \
    Unary(w, d, [](uint32_t a) -> uint32_t { return expression; }); \
  }
#define WHET_PAIR(name, expression)                                              \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                  \
    Binary(w, d, [](uint32_t a, uint32_t b) -> uint32_t { return expression; }); \
  }
#define WHET_DOUBLE(name, expression)                                                     \
  (*handlers)[name] = [](Machine&, Wave& w, const Decoded& d) {                           \
    StoreWide(w, d, [&](size_t l) {                                                       \
      [[maybe_unused]] const auto in = [&](int i) { return AsDouble(Wide(w, d, i, l)); }; \
      return AsBits64(expression);                                                        \
    });                                                                                   \
  }

int Exponent(double x) { return static_cast<int>(AsBits64(x) >> 52 & 2047); }
bool Denormal(double x) { return x != 0 && std::fabs(x) < std::numeric_limits<double>::min(); }

double DivideScale(double x, double d, double n, bool* scaled) {
  *scaled = false;
  if (n == 0 || d == 0) return std::numeric_limits<double>::quiet_NaN();
  if (Exponent(n) - Exponent(d) >= 768) {
    *scaled = true;
    return x == d ? std::ldexp(x, 128) : x;
  }
  if (Denormal(d)) return std::ldexp(x, 128);
  const bool inverse = Denormal(1 / d);
  const bool quotient = Denormal(n / d);
  if (inverse && quotient) {
    *scaled = true;
    return x == d ? std::ldexp(x, 128) : x;
  }
  if (inverse) return std::ldexp(x, -128);
  if (quotient) {
    *scaled = true;
    return x == n ? std::ldexp(x, 128) : x;
  }
  return Exponent(n) <= 53 ? std::ldexp(x, 128) : x;
}

double DivideFixup(double quotient, double d, double n) {
  const double sign = std::signbit(d) != std::signbit(n) ? -1.0 : 1.0;
  if (n != n) return n;
  if (d != d) return d;
  if ((d == 0 && n == 0) || (std::isinf(d) && std::isinf(n))) return -std::nan("");
  if (d == 0 || std::isinf(n)) return sign * std::numeric_limits<double>::infinity();
  if (std::isinf(d) || n == 0 || Exponent(n) - Exponent(d) < -1075) return sign * 0.0;
  return sign * std::fabs(quotient);
}

}  // namespace

void AddConversionHandlers(Handlers* handlers) {
  WHET_TO("v_cvt_f32_i32", AsBits(static_cast<float>(static_cast<int32_t>(a))));
  WHET_TO("v_cvt_f32_u32", AsBits(static_cast<float>(a)));
  WHET_TO("v_cvt_i32_f32", ToInteger(AsFloat(a)));
  WHET_TO("v_cvt_u32_f32", ToUnsigned(AsFloat(a)));
  WHET_TO("v_cvt_f32_ubyte0", AsBits(static_cast<float>(a & 255)));
  WHET_TO("v_cvt_f32_ubyte1", AsBits(static_cast<float>(a >> 8 & 255)));
  WHET_TO("v_cvt_f32_ubyte2", AsBits(static_cast<float>(a >> 16 & 255)));
  WHET_TO("v_cvt_f32_ubyte3", AsBits(static_cast<float>(a >> 24)));
  WHET_TO("v_cvt_rpi_i32_f32", ToInteger(std::floor(AsFloat(a) + 0.5f)));
  WHET_PAIR("v_cvt_pk_bf16_f32", ToBf16(a) | ToBf16(b) << 16);
  WHET_PAIR("v_cvt_pknorm_u16_f32", ToNormalised(AsFloat(a)) | ToNormalised(AsFloat(b)) << 16);
  (*handlers)["v_cvt_pk_u8_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Ternary(w, d, [](uint32_t a, uint32_t byte, uint32_t old) {
      const uint32_t shift = 8 * (byte & 3);
      return (old & ~(255u << shift)) | ToByte(AsFloat(a)) << shift;
    });
  };
  (*handlers)["v_cvt_pk_fp8_f32"] = [](Machine& m, Wave& w, const Decoded& d) {
    PackBytes(m, w, d, (d.op_sel >> 2 & 1) != 0, [](float x, size_t) { return x; });
  };
  (*handlers)["v_cvt_scalef32_pk_fp8_f32"] = [](Machine& m, Wave& w, const Decoded& d) {
    Lanes space;
    const Lanes scale = Source(w, d, 3, &space);
    PackBytes(m, w, d, (d.op_sel >> 3 & 1) != 0, [&](float x, size_t l) {
      return std::ldexp(x, 127 - static_cast<int>(scale[l] >> 23 & 255));
    });
  };
}

void AddDoubleHandlers(Handlers* handlers) {
  (*handlers)["v_cvt_f64_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes space;
    const Lanes a = Source(w, d, 1, &space);
    StoreWide(w, d, [&](size_t l) { return AsBits64(static_cast<double>(AsFloat(a[l]))); });
  };
  (*handlers)["v_cvt_f32_f64"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes result;
    for (size_t l = 0; l < kLanes; ++l) {
      result[l] = AsBits(static_cast<float>(AsDouble(Wide(w, d, 1, l))));
    }
    Store(w, d, result);
  };
  WHET_DOUBLE("v_add_f64", in(1) + in(2));
  WHET_DOUBLE("v_mul_f64", in(1) * in(2));
  WHET_DOUBLE("v_fma_f64", std::fma(in(1), in(2), in(3)));
  WHET_DOUBLE("v_fmac_f64", std::fma(in(1), in(2), in(0)));
  // An estimate of some 25 bits: what follows has to refine it.
  WHET_DOUBLE("v_rcp_f64", static_cast<double>(static_cast<float>(1 / in(1))));
  (*handlers)["v_div_scale_f64"] = [](Machine&, Wave& w, const Decoded& d) {
    uint64_t mask = 0;
    StoreWide(w, d, [&](size_t l) {
      bool scaled = false;
      const double x = DivideScale(AsDouble(Wide(w, d, 2, l)), AsDouble(Wide(w, d, 3, l)),
                                   AsDouble(Wide(w, d, 4, l)), &scaled);
      mask |= static_cast<uint64_t>(scaled) << l;
      return AsBits64(x);
    });
    w.SetPair(d.operand[1].index, mask);
  };
  (*handlers)["v_div_fmas_f64"] = [](Machine&, Wave& w, const Decoded& d) {
    const uint64_t vcc = w.Pair(kVcc);
    StoreWide(w, d, [&](size_t l) {
      const double c = AsDouble(Wide(w, d, 3, l));
      double sum = std::fma(AsDouble(Wide(w, d, 1, l)), AsDouble(Wide(w, d, 2, l)), c);
      if (vcc >> l & 1) sum = std::ldexp(sum, Exponent(c) > 1023 ? 128 : -128);
      return AsBits64(sum);
    });
  };
  WHET_DOUBLE("v_div_fixup_f64", DivideFixup(in(1), in(2), in(3)));
}

}  // namespace whet::isa
