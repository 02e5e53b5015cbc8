// LDS, and exchanges between lanes: through LDS's crossbar, and by vector instructions.
#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

uint32_t Byte(const Wave& w, const Decoded& d, int address, size_t lane, int offset) {
  return w.v[d.operand[static_cast<size_t>(address)].index][lane] + static_cast<uint32_t>(offset);
}

// False with a finding where the bytes lie outside.
bool Inside(Machine& m, const Wave& w, uint32_t at, uint32_t bytes) {
  if (uint64_t{at} + bytes <= m.lds.size()) return true;
  m.Fail(w, absl::StrCat("touches byte ", at, " of ", m.lds.size(), " of LDS"));
  return false;
}

bool ReadBytes(Machine& m, const Wave& w, size_t lane, uint32_t at, uint32_t bytes, void* to) {
  if (!Inside(m, w, at, bytes)) return false;
  if (const char* fault =
          m.shadow->Read(at, bytes, {w.index, static_cast<uint16_t>(lane), w.step})) {
    m.Find(w, fault);
  }
  std::memcpy(to, m.lds.data() + at, bytes);
  return true;
}

bool WriteBytes(Machine& m, const Wave& w, size_t lane, uint32_t at, uint32_t bytes,
                const void* from) {
  if (!Inside(m, w, at, bytes)) return false;
  if (const char* fault =
          m.shadow->Write(at, bytes, {w.index, static_cast<uint16_t>(lane), w.step})) {
    m.Find(w, fault);
  }
  std::memcpy(m.lds.data() + at, from, bytes);
  return true;
}

// The result's registers are on their way.
void Deliver(Wave& w, const Decoded& d, std::vector<Lanes> words) {
  Delivery delivery;
  delivery.kind = Delivery::Kind::kVectorRegisters;
  delivery.first = d.operand[0].index;
  delivery.count = d.operand[0].count;
  delivery.from_lds = true;
  delivery.lanes = w.exec();
  delivery.words = std::move(words);
  for (uint16_t i = 0; i < delivery.count; ++i) ++w.lds_in_flight[delivery.first + i];
  w.local.push_back(std::move(delivery));
}

// Bytes at each of up to two places per lane, one after another in the result.
void Read(Machine& m, Wave& w, const Decoded& d, uint32_t bytes, int offset0, int offset1,
          bool two) {
  std::vector<Lanes> words(d.operand[0].count);
  for (size_t l = 0; l < kLanes; ++l) {
    if ((w.exec() >> l & 1) == 0) continue;
    std::array<uint32_t, 4> got = {};
    if (!ReadBytes(m, w, l, Byte(w, d, 1, l, offset0), bytes, got.data())) return;
    if (two && !ReadBytes(m, w, l, Byte(w, d, 1, l, offset1), bytes,
                          reinterpret_cast<char*>(got.data()) + bytes)) {
      return;
    }
    for (size_t i = 0; i < words.size(); ++i) words[i][l] = got[i];
  }
  Deliver(w, d, std::move(words));
}

void Write(Machine& m, Wave& w, const Decoded& d, uint32_t bytes, int offset0, int offset1,
           bool two, int shift) {
  for (size_t l = 0; l < kLanes; ++l) {
    if ((w.exec() >> l & 1) == 0) continue;
    for (int which = 0; which < (two ? 2 : 1); ++which) {
      std::array<uint32_t, 4> words = {};
      const uint16_t first = d.operand[static_cast<size_t>(1 + which)].index;
      for (size_t i = 0; i < (bytes + 3) / 4; ++i) words[i] = w.v[first + i][l];
      words[0] >>= shift;
      if (!WriteBytes(m, w, l, Byte(w, d, 0, l, which == 0 ? offset0 : offset1), bytes,
                      words.data())) {
        return;
      }
    }
  }
  Delivery delivery;
  delivery.lds_write = true;
  w.local.push_back(std::move(delivery));
}

// Within 16 lanes, lane l fetches 8 bytes: a piece of row l / pieces; and gets element l of each of the rows.
void ReadTransposed(Machine& m, Wave& w, const Decoded& d, uint32_t element_bytes) {
  const size_t rows = 8 / element_bytes;         // elements that a lane gets
  const size_t pieces = 16 * element_bytes / 8;  // lanes that fetch one row of 16 elements
  std::array<std::array<unsigned char, 8>, kLanes> fetched = {};
  if (w.exec() != ~0ull) m.Find(w, "transposes with lanes switched off");
  for (size_t l = 0; l < kLanes; ++l) {
    if (!ReadBytes(m, w, l, Byte(w, d, 1, l, d.offset), 8, fetched[l].data())) return;
  }
  std::vector<Lanes> words(2);
  for (size_t l = 0; l < kLanes; ++l) {
    std::array<unsigned char, 8> mine;
    const size_t column_byte = l % 16 * element_bytes;
    for (size_t r = 0; r < rows; ++r) {
      const size_t from = l / 16 * 16 + r * pieces + column_byte / 8;
      std::memcpy(mine.data() + r * element_bytes, fetched[from].data() + column_byte % 8,
                  element_bytes);
    }
    for (size_t i = 0; i < 2; ++i) std::memcpy(&words[i][l], mine.data() + 4 * i, 4);
  }
  Deliver(w, d, std::move(words));
}

// swizzle(SWAP,8) and kin, as masks: the lane within 32 that is read is ((lane & and) | or) ^ xor.
void Swizzle(Machine& m, Wave& w, const Decoded& d) {
  uint32_t x = 0;
  if (absl::StartsWith(d.swizzle, "swizzle(SWAP,")) {
    x = static_cast<uint32_t>(std::strtoul(d.swizzle.c_str() + 13, nullptr, 10));
  } else {
    m.Fail(w, absl::StrCat("has a pattern that is not modelled: ", d.swizzle));
    return;
  }
  const Lanes& from = w.v[d.operand[1].index];
  std::vector<Lanes> words(1);
  for (size_t l = 0; l < kLanes; ++l) {
    const size_t source = (l & 32) | ((l & 31) ^ x);
    words[0][l] = w.exec() >> source & 1 ? from[source] : 0;
  }
  Deliver(w, d, std::move(words));
}

void BackwardPermute(Machine&, Wave& w, const Decoded& d) {
  std::vector<Lanes> words(1);
  for (size_t l = 0; l < kLanes; ++l) {
    const size_t source = (w.v[d.operand[1].index][l] + static_cast<uint32_t>(d.offset)) / 4 % 64;
    words[0][l] = w.exec() >> source & 1 ? w.v[d.operand[2].index][source] : 0;
  }
  Deliver(w, d, std::move(words));
}

template <size_t kRow>
void PermlaneSwap(Machine&, Wave& w, const Decoded& d) {
  Lanes& a = w.v[d.operand[0].index];
  Lanes& b = w.v[d.operand[1].index];
  for (size_t l = 0; l < kLanes; ++l) {
    // Odd rows of the first against even rows of the second.
    if (l / kRow % 2 == 0) continue;
    const size_t other = l - kRow;
    if ((w.exec() >> l & 1) != 0 && (w.exec() >> other & 1) != 0) std::swap(a[l], b[other]);
  }
}

}  // namespace

void AddLdsHandlers(Handlers* handlers) {
#define WHET_READ(name, bytes)                                    \
  (*handlers)[name] = [](Machine& m, Wave& w, const Decoded& d) { \
    Read(m, w, d, bytes, d.offset, 0, false);                     \
  }
#define WHET_READ2(name, bytes, unit)                               \
  (*handlers)[name] = [](Machine& m, Wave& w, const Decoded& d) {   \
    Read(m, w, d, bytes, d.offset0*(unit), d.offset1*(unit), true); \
  }
#define WHET_WRITE(name, bytes, shift)                            \
  (*handlers)[name] = [](Machine& m, Wave& w, const Decoded& d) { \
    Write(m, w, d, bytes, d.offset, 0, false, shift);             \
  }
#define WHET_WRITE2(name, bytes, unit)                                  \
  (*handlers)[name] = [](Machine& m, Wave& w, const Decoded& d) {       \
    Write(m, w, d, bytes, d.offset0*(unit), d.offset1*(unit), true, 0); \
  }
  WHET_READ("ds_read_u8", 1);
  WHET_READ("ds_read_u16", 2);
  WHET_READ("ds_read_b32", 4);
  WHET_READ("ds_read_b64", 8);
  WHET_READ("ds_read_b96", 12);
  WHET_READ("ds_read_b128", 16);
  WHET_READ2("ds_read2_b32", 4, 4);
  WHET_READ2("ds_read2_b64", 8, 8);
  WHET_READ2("ds_read2st64_b32", 4, 256);
  WHET_READ2("ds_read2st64_b64", 8, 512);
  WHET_WRITE("ds_write_b8", 1, 0);
  WHET_WRITE("ds_write_b8_d16_hi", 1, 16);
  WHET_WRITE("ds_write_b16", 2, 0);
  WHET_WRITE("ds_write_b16_d16_hi", 2, 16);
  WHET_WRITE("ds_write_b32", 4, 0);
  WHET_WRITE("ds_write_b64", 8, 0);
  WHET_WRITE("ds_write_b96", 12, 0);
  WHET_WRITE("ds_write_b128", 16, 0);
  WHET_WRITE2("ds_write2_b32", 4, 4);
  WHET_WRITE2("ds_write2_b64", 8, 8);
  WHET_WRITE2("ds_write2st64_b32", 4, 256);
  WHET_WRITE2("ds_write2st64_b64", 8, 512);
  (*handlers)["ds_read_b64_tr_b16"] = [](Machine& m, Wave& w, const Decoded& d) {
    ReadTransposed(m, w, d, 2);
  };
  (*handlers)["ds_read_b64_tr_b8"] = [](Machine& m, Wave& w, const Decoded& d) {
    ReadTransposed(m, w, d, 1);
  };
  (*handlers)["ds_swizzle_b32"] = Swizzle;
  (*handlers)["ds_bpermute_b32"] = BackwardPermute;
}

void AddLaneHandlers(Handlers* handlers) {
  (*handlers)["v_readfirstlane_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes space;
    const Lanes& from = Source(w, d, 1, &space);
    const uint64_t exec = w.exec();
    w.s[d.operand[0].index] = from[exec == 0 ? 0 : static_cast<size_t>(std::countr_zero(exec))];
  };
  (*handlers)["v_readlane_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    w.s[d.operand[0].index] = w.v[d.operand[1].index][ScalarWord(w, d.operand[2]) % kLanes];
  };
  (*handlers)["v_writelane_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    w.v[d.operand[0].index][ScalarWord(w, d.operand[2]) % kLanes] = ScalarWord(w, d.operand[1]);
  };
  (*handlers)["v_permlane32_swap_b32"] = PermlaneSwap<32>;
  (*handlers)["v_permlane16_swap_b32"] = PermlaneSwap<16>;
  (*handlers)["v_mbcnt_lo_u32_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb, result;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t below = l >= 32 ? ~0u : (1u << l) - 1;
      result[l] = b[l] + static_cast<uint32_t>(std::popcount(a[l] & below));
    }
    Store(w, d, result);
  };
  (*handlers)["v_mbcnt_hi_u32_b32"] = [](Machine&, Wave& w, const Decoded& d) {
    Lanes sa, sb, result;
    const Lanes& a = Source(w, d, 1, &sa);
    const Lanes& b = Source(w, d, 2, &sb);
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t below = l < 32 ? 0u : (1u << (l - 32)) - 1;
      result[l] = b[l] + static_cast<uint32_t>(std::popcount(a[l] & below));
    }
    Store(w, d, result);
  };
}

}  // namespace whet::isa
