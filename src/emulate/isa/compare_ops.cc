// Vector comparisons: a bit per active lane, zero for the others, in VCC or any pair of scalars.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

struct Equal {
  template <class T>
  static bool Of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  static bool Of(T a, T b) {
    return a != b;
  }
};
struct Less {
  template <class T>
  static bool Of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static bool Of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static bool Of(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  static bool Of(T a, T b) {
    return a >= b;
  }
};
struct LessOrGreater {
  template <class T>
  static bool Of(T a, T b) {
    return a < b || a > b;
  }
};
struct Ordered {
  template <class T>
  static bool Of(T a, T b) {
    return a == a && b == b;
  }
};
template <class F>
struct Not {
  template <class T>
  static bool Of(T a, T b) {
    return !F::Of(a, b);
  }
};

template <class T>
T Value(uint32_t bits) {
  if constexpr (sizeof(T) == 4) {
    T value;
    std::memcpy(&value, &bits, 4);
    return value;
  } else {
    return static_cast<T>(bits);
  }
}

void Result(Wave& w, const Decoded& d, uint64_t mask) {
  w.SetPair(d.operand[0].index, mask);
  if (d.name.compare(0, 6, "v_cmpx") == 0) w.SetPair(kExec, mask);
}

template <class T, class F>
void Compare(Machine&, Wave& w, const Decoded& d) {
  Lanes sa, sb;
  const Lanes& a = Source(w, d, 1, &sa);
  const Lanes& b = Source(w, d, 2, &sb);
  Result(w, d, LaneMask(w, [&](size_t l) { return F::Of(Value<T>(a[l]), Value<T>(b[l])); }));
}

template <class T, class F>
void CompareWide(Machine&, Wave& w, const Decoded& d) {
  Result(w, d, LaneMask(w, [&](size_t l) {
           T a, b;
           const uint64_t wide_a = Wide(w, d, 1, l), wide_b = Wide(w, d, 2, l);
           std::memcpy(&a, &wide_a, 8);
           std::memcpy(&b, &wide_b, 8);
           return F::Of(a, b);
         }));
}

// The classes: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
uint32_t ClassOf(uint32_t x) {
  const bool negative = x >> 31;
  const uint32_t magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return IsSignalling(x) ? 1 : 2;
  if (magnitude == 0x7f800000u) return negative ? 4 : 0x200;
  if (magnitude >= 0x800000u) return negative ? 8 : 0x100;
  if (magnitude > 0) return negative ? 0x10 : 0x80;
  return negative ? 0x20 : 0x40;
}

template <class T>
void AddIntegers(Handlers* handlers, const std::string& type) {
  for (const char* prefix : {"v_cmp_", "v_cmpx_"}) {
    const auto set = [&](const char* name, Handler handler) {
      (*handlers)[absl::StrCat(prefix, name, "_", type)] = handler;
    };
    if constexpr (sizeof(T) == 8) {
      set("eq", CompareWide<T, Equal>);
      set("ne", CompareWide<T, NotEqual>);
      set("lt", CompareWide<T, Less>);
      set("le", CompareWide<T, LessOrEqual>);
      set("gt", CompareWide<T, Greater>);
      set("ge", CompareWide<T, GreaterOrEqual>);
    } else {
      set("eq", Compare<T, Equal>);
      set("ne", Compare<T, NotEqual>);
      set("lt", Compare<T, Less>);
      set("le", Compare<T, LessOrEqual>);
      set("gt", Compare<T, Greater>);
      set("ge", Compare<T, GreaterOrEqual>);
    }
  }
}

}  // namespace

void AddCompareHandlers(Handlers* handlers) {
  AddIntegers<uint16_t>(handlers, "u16");
  AddIntegers<int16_t>(handlers, "i16");
  AddIntegers<uint32_t>(handlers, "u32");
  AddIntegers<int32_t>(handlers, "i32");
  AddIntegers<uint64_t>(handlers, "u64");
  AddIntegers<int64_t>(handlers, "i64");
  const auto set = [&](const char* name, Handler handler) {
    (*handlers)[absl::StrCat("v_cmp_", name, "_f32")] = handler;
    (*handlers)[absl::StrCat("v_cmpx_", name, "_f32")] = handler;
  };
  set("eq", Compare<float, Equal>);
  set("neq", Compare<float, NotEqual>);
  set("lt", Compare<float, Less>);
  set("nlt", Compare<float, Not<Less>>);
  set("le", Compare<float, LessOrEqual>);
  set("nle", Compare<float, Not<LessOrEqual>>);
  set("gt", Compare<float, Greater>);
  set("ngt", Compare<float, Not<Greater>>);
  set("ge", Compare<float, GreaterOrEqual>);
  set("nge", Compare<float, Not<GreaterOrEqual>>);
  set("lg", Compare<float, LessOrGreater>);
  set("nlg", Compare<float, Not<LessOrGreater>>);
  set("o", Compare<float, Ordered>);
  set("u", Compare<float, Not<Ordered>>);
  (*handlers)["v_cmp_class_f32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    Result(w, d, LaneMask(w, [&](size_t l) { return (ClassOf(a[l]) & b[l]) != 0; }));
  };
}

}  // namespace whet::isa
