// Global, flat, buffer and scalar memory, and the counters that say when its results have arrived.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/emulate/isa/machine.h"
#include "src/emulate/isa/vector_operands.h"

namespace whet::isa {
namespace {

// What the end of an operation's name says about a load or store.
struct Access {
  uint32_t bytes;
  bool sign_extend = false;
};
Access AccessOf(const std::string& name) {
  const std::string type = name.substr(name.rfind('_') + 1);
  if (type == "ubyte" || type == "byte") return {1};
  if (type == "sbyte") return {1, true};
  if (type == "ushort" || type == "short") return {2};
  if (type == "sshort") return {2, true};
  if (type == "dwordx2") return {8};
  if (type == "dwordx3") return {12};
  if (type == "dwordx4") return {16};
  return {4};
}

void MarkVector(Wave& w, uint16_t first, uint16_t count) {
  for (uint16_t i = 0; i < count; ++i) ++w.memory_in_flight[first + i];
}

void Land(Machine& m, Wave& w, const Delivery& delivery) {
  switch (delivery.kind) {
    case Delivery::Kind::kVectorRegisters:
      for (size_t i = 0; i < delivery.words.size(); ++i) {
        Lanes& to = w.v[delivery.first + i];
        for (size_t l = 0; l < kLanes; ++l) {
          if (delivery.lanes >> l & 1) to[l] = delivery.words[i][l];
        }
      }
      for (uint16_t i = 0; i < delivery.count; ++i) {
        --(delivery.from_lds ? w.lds_in_flight : w.memory_in_flight)[delivery.first + i];
      }
      break;
    case Delivery::Kind::kScalarRegisters:
      for (uint16_t i = 0; i < delivery.count; ++i) {
        w.s[delivery.first + i] = delivery.words[i][0];
        w.scalar_in_flight[delivery.first + i] = 0;
      }
      break;
    case Delivery::Kind::kLds:
      for (const auto& [at, words] : delivery.landings) {
        std::memcpy(m.lds.data() + at, words.data(), delivery.bytes);
        m.shadow->Land(at, delivery.bytes, {w.index, 0, w.step});
      }
      break;
    case Delivery::Kind::kStore:
      break;
  }
}

// The address of each lane of a global or flat operation whose address operands begin at `i`.
uint64_t Address(const Wave& w, const Decoded& d, int i, int scalar, size_t lane) {
  const auto offset = static_cast<uint64_t>(static_cast<int64_t>(d.offset));
  const Operand& v = d.operand[static_cast<size_t>(i)];
  if (scalar >= 0 && scalar < d.operands &&
      d.operand[static_cast<size_t>(scalar)].kind == OperandKind::kScalar) {
    const uint64_t base = w.Pair(d.operand[static_cast<size_t>(scalar)].index);
    return base + (v.kind == OperandKind::kVector ? w.v[v.index][lane] : 0) + offset;
  }
  return (w.v[v.index][lane] | static_cast<uint64_t>(w.v[v.index + 1u][lane]) << 32) + offset;
}

uint32_t Extend(uint32_t word, Access access) {
  if (access.bytes == 1 && access.sign_extend)
    return static_cast<uint32_t>(static_cast<int8_t>(word));
  if (access.bytes == 2 && access.sign_extend)
    return static_cast<uint32_t>(static_cast<int16_t>(word));
  return word;
}

// To the first operand's registers, of the lanes that run.
Delivery ToRegisters(const Wave& w, const Decoded& d) {
  Delivery delivery;
  delivery.kind = Delivery::Kind::kVectorRegisters;
  delivery.first = d.operand[0].index;
  delivery.count = d.operand[0].count;
  delivery.lanes = w.exec();
  delivery.words.resize(delivery.count);
  return delivery;
}

void LoadGlobal(Machine& m, Wave& w, const Decoded& d) {
  const Access access = AccessOf(d.name);
  Delivery delivery = ToRegisters(w, d);
  for (size_t l = 0; l < kLanes; ++l) {
    if ((delivery.lanes >> l & 1) == 0) continue;
    const unsigned char* const at = m.At(w, Address(w, d, 1, 2, l), access.bytes, false);
    if (at == nullptr) return;
    std::array<uint32_t, 4> words = {};
    std::memcpy(words.data(), at, access.bytes);
    for (size_t i = 0; i < delivery.count; ++i) delivery.words[i][l] = words[i];
    if (access.bytes < 4) delivery.words[0][l] = Extend(words[0], access);
  }
  MarkVector(w, delivery.first, delivery.count);
  // A flat load counts as both, and may come back through either.
  if (absl::StartsWith(d.name, "flat_")) {
    Delivery also;
    also.scalar_memory = true;
    w.local.push_back(std::move(also));
  }
  w.vector_memory.push_back(std::move(delivery));
}

void StoreGlobal(Machine& m, Wave& w, const Decoded& d) {
  const Access access = AccessOf(d.name);
  const uint64_t exec = w.exec();
  for (size_t l = 0; l < kLanes; ++l) {
    if ((exec >> l & 1) == 0) continue;
    unsigned char* const at = m.At(w, Address(w, d, 0, 2, l), access.bytes, true);
    if (at == nullptr) return;
    std::array<uint32_t, 4> words = {};
    for (size_t i = 0; i < (access.bytes + 3) / 4; ++i) words[i] = w.v[d.operand[1].index + i][l];
    std::memcpy(at, words.data(), access.bytes);
  }
  w.vector_memory.push_back({});
}

template <class F>
void Atomic(Machine& m, Wave& w, const Decoded& d, F f) {
  const bool returns = d.operands == 4;
  const int address = returns ? 1 : 0;
  Delivery delivery;
  if (returns) {
    delivery.kind = Delivery::Kind::kVectorRegisters;
    delivery.first = d.operand[0].index;
    delivery.count = 1;
    delivery.lanes = w.exec();
    delivery.words.resize(1);
  }
  for (size_t l = 0; l < kLanes; ++l) {
    if ((w.exec() >> l & 1) == 0) continue;
    unsigned char* const at = m.At(w, Address(w, d, address, address + 2, l), 4, true);
    if (at == nullptr) return;
    uint32_t old;
    std::memcpy(&old, at, 4);
    const uint32_t value = f(old, w.v[d.operand[static_cast<size_t>(address) + 1].index][l]);
    std::memcpy(at, &value, 4);
    if (returns) delivery.words[0][l] = old;
  }
  if (returns) MarkVector(w, delivery.first, 1);
  w.vector_memory.push_back(std::move(delivery));
}

// A raw buffer: base, size in bytes, no stride. Null for a lane that lies beyond it.
struct Buffer {
  uint64_t base;
  uint32_t bytes;
};

std::optional<Buffer> BufferOf(Machine& m, const Wave& w, const Operand& o) {
  const auto word = [&](size_t i) { return w.s[o.index + i]; };
  if ((word(1) >> 16 & 0x3fff) != 0 || word(1) >> 30 != 0) {
    m.Fail(w, "uses a buffer with a stride or a swizzle, which is not modelled");
    return std::nullopt;
  }
  return Buffer{word(0) | static_cast<uint64_t>(word(1) & 0xffff) << 32, word(2)};
}

// Operands: (destination,) offset, descriptor, scalar offset.
void LoadBuffer(Machine& m, Wave& w, const Decoded& d) {
  const Access access = AccessOf(d.name);
  const size_t first = d.lds ? 0 : 1;
  const Operand& offset = d.operand[first];
  const std::optional<Buffer> buffer = BufferOf(m, w, d.operand[first + 1]);
  if (!buffer.has_value()) return;
  const uint32_t scalar_offset = ScalarWord(w, d.operand[first + 2]);
  Delivery delivery;
  delivery.lanes = w.exec();
  if (d.lds) {
    delivery.kind = Delivery::Kind::kLds;
    delivery.bytes = access.bytes;
  } else {
    delivery.kind = Delivery::Kind::kVectorRegisters;
    delivery.first = d.operand[0].index;
    delivery.count = d.operand[0].count;
    delivery.words.resize(delivery.count);
  }
  for (size_t l = 0; l < kLanes; ++l) {
    if ((delivery.lanes >> l & 1) == 0) continue;
    const uint64_t at =
        uint64_t{d.offen && offset.kind == OperandKind::kVector ? w.v[offset.index][l] : 0u} +
        static_cast<uint32_t>(d.offset);
    // The bound does not see the scalar offset.
    const bool begins_inside = at < buffer->bytes;
    const bool inside = at + access.bytes <= buffer->bytes;
    if (begins_inside && !inside) {
      m.Find(w, "loads across the end of a buffer: which of its words are zero is not documented");
    }
    std::array<uint32_t, 4> words = {};
    if (inside) {
      const unsigned char* const from =
          m.At(w, buffer->base + at + scalar_offset, access.bytes, false);
      if (from == nullptr) return;
      std::memcpy(words.data(), from, access.bytes);
    }
    if (!d.lds) {
      for (size_t i = 0; i < delivery.count; ++i) delivery.words[i][l] = words[i];
      if (access.bytes < 4) delivery.words[0][l] = Extend(words[0], access);
      continue;
    }
    if (!inside && m.drop_lds_loads) continue;
    // Lane l's bytes lie l times their number behind M0 and the instruction's offset.
    const uint64_t to = uint64_t{w.s[kM0]} + static_cast<uint32_t>(d.offset) + l * access.bytes;
    if (to + access.bytes > m.lds.size()) {
      m.Fail(w, absl::StrCat("loads to byte ", to, " of ", m.lds.size(), " of LDS"));
      return;
    }
    if (const char* fault =
            m.shadow->Issue(to, access.bytes, {w.index, static_cast<uint16_t>(l), w.step})) {
      m.Find(w, fault);
    }
    delivery.landings.emplace_back(static_cast<uint32_t>(to), words);
  }
  if (!d.lds) MarkVector(w, delivery.first, delivery.count);
  w.vector_memory.push_back(std::move(delivery));
}

// The private memory of a lane at the operation's address, whose operands begin at `i`; null with a finding beyond it.
unsigned char* ScratchAt(Machine& m, Wave& w, const Decoded& d, size_t i, size_t scalar,
                         size_t lane, uint32_t bytes) {
  const Operand& v = d.operand[i];
  const Operand& s = d.operand[scalar];
  uint64_t at = static_cast<uint64_t>(static_cast<int64_t>(d.offset));
  if (v.kind == OperandKind::kVector) at += w.v[v.index][lane];
  if (s.kind == OperandKind::kScalar) at += w.s[s.index];
  if (at + bytes > m.scratch_bytes || at > m.scratch_bytes) {
    m.Fail(w, absl::StrCat("touches byte ", at, " of ", m.scratch_bytes, " of scratch memory"));
    return nullptr;
  }
  return w.scratch.data() + lane * m.scratch_bytes + at;
}

void LoadScratch(Machine& m, Wave& w, const Decoded& d) {
  const Access access = AccessOf(d.name);
  Delivery delivery = ToRegisters(w, d);
  for (size_t l = 0; l < kLanes; ++l) {
    if ((delivery.lanes >> l & 1) == 0) continue;
    const unsigned char* const at = ScratchAt(m, w, d, 1, 2, l, access.bytes);
    if (at == nullptr) return;
    for (size_t i = 0; i < delivery.count; ++i) std::memcpy(&delivery.words[i][l], at + 4 * i, 4);
  }
  MarkVector(w, delivery.first, delivery.count);
  w.vector_memory.push_back(std::move(delivery));
}

void StoreScratch(Machine& m, Wave& w, const Decoded& d) {
  const Access access = AccessOf(d.name);
  for (size_t l = 0; l < kLanes; ++l) {
    if ((w.exec() >> l & 1) == 0) continue;
    unsigned char* const at = ScratchAt(m, w, d, 0, 2, l, access.bytes);
    if (at == nullptr) return;
    for (size_t i = 0; i < access.bytes / 4; ++i) {
      std::memcpy(at + 4 * i, &w.v[d.operand[1].index + i][l], 4);
    }
  }
  w.vector_memory.push_back({});
}

void LoadScalar(Machine& m, Wave& w, const Decoded& d) {
  const uint64_t base = w.Pair(d.operand[1].index);
  const uint32_t offset = ScalarWord(w, d.operand[2]) + static_cast<uint32_t>(d.offset);
  Delivery delivery;
  delivery.kind = Delivery::Kind::kScalarRegisters;
  delivery.scalar_memory = true;
  delivery.first = d.operand[0].index;
  delivery.count = d.operand[0].count;
  delivery.words.resize(delivery.count);
  const uint32_t bytes = 4u * delivery.count;
  const unsigned char* const at = m.At(w, base + offset, bytes, false);
  if (at == nullptr) return;
  for (uint16_t i = 0; i < delivery.count; ++i) {
    std::memcpy(&delivery.words[i][0], at + 4 * i, 4);
    w.scalar_in_flight[delivery.first + i] = 1;
  }
  w.local.push_back(std::move(delivery));
}

}  // namespace

void WaitVectorMemory(Machine& m, Wave& w, size_t outstanding) {
  while (w.vector_memory.size() > outstanding) {
    Land(m, w, w.vector_memory.front());
    w.vector_memory.pop_front();
  }
}

void WaitLocal(Machine& m, Wave& w, size_t outstanding) {
  // LDS answers in order; scalar loads in any, so that only a wait for everything covers them. Whichever overtook, no more than
  // `outstanding` of LDS's can be left.
  const auto is_scalar = [](const Delivery& x) { return x.scalar_memory; };
  const auto scalars =
      static_cast<size_t>(std::count_if(w.local.begin(), w.local.end(), is_scalar));
  size_t lds_left = w.local.size() - scalars;
  for (auto it = w.local.begin(); it != w.local.end();) {
    if (it->scalar_memory ? outstanding == 0 : lds_left > outstanding) {
      if (!it->scalar_memory) --lds_left;
      Land(m, w, *it);
      it = w.local.erase(it);
    } else {
      ++it;
    }
  }
  if (std::none_of(w.local.begin(), w.local.end(), [](const Delivery& x) { return x.lds_write; })) {
    m.shadow->Wait(w.index);
  }
}

unsigned char* Machine::At(const Wave& wave, uint64_t address, uint32_t bytes, bool write) {
  for (const Region& region : regions) {
    if (address < region.begin || address + bytes > region.end) continue;
    if (write && !region.writable) {
      Fail(wave, absl::StrCat("writes to input ", region.name));
      return nullptr;
    }
    return reinterpret_cast<unsigned char*>(address);
  }
  std::string nearest;
  uint64_t best = ~0ull;
  for (const Region& region : regions) {
    const uint64_t distance =
        address < region.begin ? region.begin - address : address - region.begin;
    if (distance >= best) continue;
    best = distance;
    nearest = absl::StrCat(", ", static_cast<int64_t>(address - region.begin),
                           " bytes from the start of ", region.name, " (",
                           region.end - region.begin, " bytes)");
  }
  Fail(wave, absl::StrCat(write ? "writes " : "reads ", bytes, " bytes outside of every argument",
                          nearest));
  return nullptr;
}

void AddMemoryHandlers(Handlers* handlers) {
  for (const char* kind : {"global_", "flat_"}) {
    for (const char* type :
         {"ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4"}) {
      (*handlers)[absl::StrCat(kind, "load_", type)] = LoadGlobal;
    }
    for (const char* type : {"byte", "short", "dword", "dwordx2", "dwordx3", "dwordx4"}) {
      (*handlers)[absl::StrCat(kind, "store_", type)] = StoreGlobal;
    }
  }
  for (const char* type :
       {"ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4"}) {
    (*handlers)[absl::StrCat("buffer_load_", type)] = LoadBuffer;
  }
  for (const char* count : {"", "x2", "x3", "x4"}) {
    (*handlers)[absl::StrCat("scratch_load_dword", count)] = LoadScratch;
    (*handlers)[absl::StrCat("scratch_store_dword", count)] = StoreScratch;
  }
  for (const char* count : {"", "x2", "x4", "x8", "x16"}) {
    (*handlers)[absl::StrCat("s_load_dword", count)] = LoadScalar;
  }
  (*handlers)["global_atomic_add"] = [](Machine& m, Wave& w, const Decoded& d) {
    Atomic(m, w, d, [](uint32_t old, uint32_t value) { return old + value; });
  };
  (*handlers)["global_atomic_umax"] = [](Machine& m, Wave& w, const Decoded& d) {
    Atomic(m, w, d, [](uint32_t old, uint32_t value) { return std::max(old, value); });
  };
  (*handlers)["global_atomic_smax"] = [](Machine& m, Wave& w, const Decoded& d) {
    Atomic(m, w, d, [](uint32_t old, uint32_t value) {
      return static_cast<int32_t>(old) > static_cast<int32_t>(value) ? old : value;
    });
  };
  (*handlers)["global_atomic_swap"] = [](Machine& m, Wave& w, const Decoded& d) {
    Atomic(m, w, d, [](uint32_t, uint32_t value) { return value; });
  };
}

}  // namespace whet::isa
