#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "src/model/target.h"

namespace whet {
namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers CpuId(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  // Fails for leaves beyond the processor's last one: then no feature of that leaf is there.
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// XCR0: the register states that the operating system saves on a context switch.
uint64_t SavedStates() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Linux lends the tile registers only on request; this asks whether a request could be granted.
bool KernelLendsTiles() {
  constexpr int kArchGetXcompSupported = 0x1021;
  constexpr uint64_t kTileData = uint64_t{1} << 18;
  uint64_t supported = 0;
  if (syscall(SYS_arch_prctl, kArchGetXcompSupported, &supported) != 0) return false;
  return (supported & kTileData) != 0;
}

bool Bit(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

}  // namespace

Target HostCpuTarget() {
  constexpr uint64_t kYmm = 0x6;          // SSE and upper halves of YMM
  constexpr uint64_t kZmm = 0xE0 | kYmm;  // and opmasks, upper halves of ZMM, ZMM16..31
  constexpr uint64_t kTiles = 0x60000;
  Target target;
  target.platform = Platform::kCpu;
  target.architecture = "x86-64";
  const Registers leaf1 = CpuId(1, 0);
  if (!Bit(leaf1.c, 27)) return target;  // OSXSAVE: without it XCR0 cannot be read
  const uint64_t saved = SavedStates();
  const Registers leaf7 = CpuId(7, 0);
  const Registers leaf7_1 = leaf7.a >= 1 ? CpuId(7, 1) : Registers();
  const bool ymm = (saved & kYmm) == kYmm && Bit(leaf1.c, 28);
  const bool zmm = ymm && (saved & kZmm) == kZmm && Bit(leaf7.b, 16);
  const bool tiles = (saved & kTiles) == kTiles && Bit(leaf7.d, 24) && KernelLendsTiles();
  const auto add = [&](bool present, const char* name) {
    if (present) target.features.push_back(name);
  };
  add(ymm && Bit(leaf7.b, 5), "avx2");
  add(ymm && Bit(leaf1.c, 12), "fma");
  add(ymm && Bit(leaf1.c, 29), "f16c");
  add(zmm, "avx512f");
  add(zmm && Bit(leaf7.b, 17), "avx512dq");
  add(zmm && Bit(leaf7.b, 30), "avx512bw");
  add(zmm && Bit(leaf7.b, 31), "avx512vl");
  add(zmm && Bit(leaf7.c, 11), "avx512vnni");
  add(zmm && Bit(leaf7_1.a, 5), "avx512bf16");
  add(zmm && Bit(leaf7.d, 23), "avx512fp16");
  add(tiles, "amx-tile");
  add(tiles && Bit(leaf7.d, 22), "amx-bf16");
  add(tiles && Bit(leaf7.d, 25), "amx-int8");
  std::sort(target.features.begin(), target.features.end());
  return target;
}

}  // namespace whet
