"""What the instruction mix of FP8 attention reaches on a Hopper GPU under its power limit, in loops without loads, barriers or data flow.

    python3 fp8_speed_of_light.py WORK_DIR [--build] [--soak 1.0] [--span 0.5] [--out results.json]

Two warpgroups run the products of a tile of 64 rows x 128 keys, S = Q K^T from shared memory and O += P V with P in registers; two more do
the arithmetic of its softmax beside them. No attention kernel with the same mix can be faster on the same data at the same power. Mixes, for
each 64 x 128 scores and thread:
  none   no arithmetic
  free   the least that weights without an exponential take: 64 maxima, 64 FFMA, 32 packing conversions; no row sums
  own    what the kernel of class 1 does in its loop besides control, by its SASS: 64 FFMA, 30 VIMNMX3 and 4 VIMNMX, 32 F2IP, the look at both
         ends of the range (2 ISETP, a vote), row sums by one more group of columns of P V (8 of 136) and their 2 FADD and 2 FMUL, and a
         sixteenth of a promotion (64 FMUL, 32 F2FP, 32 HFMA2)
TFLOP/s count 2 x 64 x 128 x (Dqk + 128) for each tile, so own's row sums are cost, not work. --build compiles and needs no GPU."""
import argparse, ctypes, json, os, sys

import build_variants

KEYS, VALUES, STAGES, BLOCKS = 128, 128, 2, 132


def product(columns, d, a, b, accumulate):
    """One wgmma of 64 x columns x 32; `a` is a descriptor, or an array of four registers."""
    n = columns // 2
    registers = isinstance(a, list)
    operands = ", ".join("%%%d" % i for i in range(n))
    left = "{%s}" % ", ".join("%%%d" % (n + i) for i in range(4)) if registers else "%%%d" % n
    at = n + (4 if registers else 1)
    text = "{ .reg .pred p; setp.ne.b32 p, %%%d, 0; wgmma.mma_async.sync.aligned.m64n%dk32.f32.e4m3.e4m3 {%s}, %s, %%%d, p, 1, 1; }" % (at + 1, columns, operands, left, at)
    outputs = ", ".join('"+f"(%s[%d])' % (d, i) for i in range(n))
    inputs = ", ".join('"r"(%s)' % x for x in a) if registers else '"l"(%s)' % a
    return 'asm volatile("%s" : %s : %s, "l"(%s), "r"(%d));' % (text, outputs, inputs, b, accumulate)


PACK = """
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        int q[4];
        for (int j = 0; j < 4; ++j) asm volatile("cvt.rni.s32.f32 %0, %1;" : "=r"(q[j]) : "f"(LEVEL(i + j)));
        unsigned a, b;
        asm volatile("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(a) : "r"(q[1]), "r"(q[0]), "r"(0));
        asm volatile("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(b) : "r"(q[3]), "r"(q[2]), "r"(a));
        acc[i / 4] ^= b;
      }"""
FREE = """
#pragma unroll
      for (int i = 0; i < 16; ++i) m[i & 3] = fmaxf(m[i & 3], x[i]);""" + PACK.replace("LEVEL(i + j)", "fmaf(x[i + j], c, m[j])")
# A whole tile: two chains of maxima for each of two rows, as the kernel has.
OWN = """
      int part[2][2];
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        float y[16];
        c = SLOPE(4 * t + quarter);
#pragma unroll
        for (int i = 0; i < 16; ++i) asm volatile("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y[i]) : "f"(x[i]), "f"(c), "f"(m[i / 2 & 1]));
#pragma unroll
        for (int row = 0; row < 2; ++row)
#pragma unroll
          for (int chain = 0; chain < 2; ++chain) {
            const auto bits = [&](int i) { return __float_as_int(y[4 * i + 2 * row + chain]); };
            int& top = part[row][chain];
            top = quarter == 0 ? __vimax3_s32(bits(0), bits(1), bits(2)) : __vimax3_s32(top, bits(0), bits(1));
            top = quarter == 0 ? max(top, bits(3)) : __vimax3_s32(top, bits(2), bits(3));
          }""" + PACK.replace("LEVEL(i + j)", "y[i + j]") + """
      }
      const int top[2] = {max(part[0][0], part[0][1]), max(part[1][0], part[1][1])};
      if (__any_sync(0xffffffffu, max(top[0], top[1]) > 0x7f000000 || min(top[0], top[1]) < -0x7f000000)) x[0] = 0;
      r[0] = (r[0] + x[1]) * c;
      r[1] = (r[1] + x[2]) * c;
      if (t % 16 == 0) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          unsigned pair;
          asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x[i & 15] * c), "f"(x[i + 1 & 15] * c));
          asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(acc[i & 3]) : "r"(pair), "r"(pair));
        }
      }"""


def source(dqk, mix):
    outputs = VALUES + (8 if mix == "own" else 0)
    q_bytes, k_bytes, v_bytes = 64 * dqk, KEYS * dqk, outputs * KEYS
    at = lambda step, rows: (step * 32 // 128) * (rows * 128 >> 4) + (step * 32 % 128 >> 4)
    scores = "\n".join(product(KEYS, "s", "dq + %d" % at(i, 64), "dk + %d" % at(i, KEYS), int(i > 0)) for i in range(dqk // 32))
    output = "\n".join(product(outputs, "o", ["p[%d][%d]" % (i, j) for j in range(4)], "dv + %d" % at(i, outputs), 1) for i in range(KEYS // 32))
    shared = 2 * q_bytes + STAGES * (k_bytes + v_bytes)
    text = """
#define SLOPE(i) __uint_as_float(0x3e000000 | (((i) * 0x9E3779) & 0x7fffff))
extern "C" __global__ void __launch_bounds__(%(threads)d, 1) loops(const unsigned char* src, float* out, int tiles) {
  extern __shared__ __align__(1024) unsigned char sm[];
  for (int i = threadIdx.x; i < %(shared)d / 16; i += blockDim.x) ((uint4*)sm)[i] = ((const uint4*)src)[i + blockIdx.x %% 8];
  __syncthreads();
  asm volatile("fence.proxy.async;");
  const int wg = threadIdx.x / 128;
  typedef unsigned long long Descriptor;
  const auto descriptor = [](unsigned a) { return Descriptor((a & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); };
  if (wg < 2) {
    %(grow)s
    float s[%(s)d], o[%(o)d];
    unsigned p[4][4];
    float used = 0;
    for (auto& v : o) v = 0;
    for (auto& v : s) v = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) p[i][j] = ((const unsigned*)src)[(1 << 18) + threadIdx.x + 512 * (4 * i + j)];
    const unsigned base = (unsigned)__cvta_generic_to_shared(sm);
    const Descriptor dq = descriptor(base + wg * %(q)d);
    for (int t = 0; t < tiles; ++t) {
      const Descriptor dk = descriptor(base + 2 * %(q)d + (t & 1) * %(k)d), dv = descriptor(base + 2 * %(q)d + 2 * %(k)d + (t & 1) * %(v)d);
      asm volatile("wgmma.fence.sync.aligned;");
      %(scores)s
      %(output)s
      asm volatile("wgmma.commit_group.sync.aligned;");
      asm volatile("wgmma.wait_group.sync.aligned 0;");
      used += s[0];
    }
    float r = used;
    for (auto v : o) r += v;
    for (auto v : s) r += v;
    if (r == 12345.678f) out[threadIdx.x] = r;
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
    float x[16], m[4] = {out[threadIdx.x], out[threadIdx.x + 512]}, r[4] = {}, c = 0;
    unsigned acc[4] = {};
    for (int i = 0; i < 16; ++i) x[i] = out[1024 + threadIdx.x + 128 * i];
    #pragma unroll 1
    for (int t = 0; t < %(steps)s; ++t) {
      c = SLOPE(t);
      %(mix)s
    }
    if (r[0] + r[1] + r[2] + r[3] + m[0] + m[1] + m[2] + m[3] + (acc[0] ^ acc[1] ^ acc[2] ^ acc[3]) + x[0] == 12345.678f) out[threadIdx.x] = r[0];
  }
}
""" % dict(threads=256 if mix == "none" else 512, shared=shared, grow="" if mix == "none" else 'asm volatile("setmaxnreg.inc.sync.aligned.u32 176;");', s=KEYS // 2, o=outputs // 2,
           q=q_bytes, k=k_bytes, v=v_bytes, scores=scores, output=output, mix={"none": "", "free": FREE, "own": OWN}[mix], steps="tiles" if mix == "own" else "tiles * 4")
    return text, shared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--soak", type=float, default=1.0)
    parser.add_argument("--span", type=float, default=0.5)
    parser.add_argument("--out", default="")
    o = parser.parse_args()
    os.makedirs(o.work, exist_ok=True)
    cases = [(dqk, mix) for dqk in (128, 192) for mix in ("none", "free", "own")]
    for dqk, mix in cases:
        path = os.path.join(o.work, "loops_%d_%s.cubin" % (dqk, mix))
        if not os.path.exists(path):
            cubin, log = build_variants.compile_cubin(build_variants.nvrtc(), source(dqk, mix)[0], "loops.cu")
            if cubin is None or "serialized" in log or "C75" in log:
                sys.exit(log)
            open(path, "wb").write(cubin)
    if o.build:
        return
    import torch
    from launch import Kernel, pointer
    from timing import steady
    generator, results = torch.Generator("cuda").manual_seed(1), []
    for dqk, mix in cases:
        shared = source(dqk, mix)[1]
        x = torch.randn(1 << 21, device="cuda", generator=generator)
        x[1 << 18:] = torch.rand((1 << 21) - (1 << 18), device="cuda", generator=generator) ** 4  # like probabilities
        raw = x.to(torch.float8_e4m3fn).view(torch.uint8).repeat(2)
        out = torch.rand(1 << 16, device="cuda", generator=generator)
        flops = 2 * 2 * 64 * KEYS * (dqk + VALUES) * BLOCKS  # of a pair of tiles on every multiprocessor
        tiles = int(2e-3 * 1400e12 / flops)
        threads = 256 if mix == "none" else 512
        launch = {"grid": [BLOCKS, 1, 1], "block": [threads, 1, 1], "shared_bytes": shared}
        run = Kernel(os.path.join(o.work, "loops_%d_%s.cubin" % (dqk, mix)), {"entry": "loops", "launch": launch}, [pointer(raw), pointer(out), ctypes.c_int(tiles)], [])
        row = steady(run, o.soak, o.span)
        row.update(dqk=dqk, mix=mix, tflops=flops * tiles / row["seconds"] / 1e12, clocks=row["seconds"] * row["mhz"] * 1e6 / tiles)
        results.append(row)
        print("e4m3 %d/128 %-5s %7.1f TFLOP/s %5d MHz %4.0f W %6.0f clocks for two tiles" % (dqk, mix, row["tflops"], row["mhz"], row["watt"], row["clocks"]), flush=True)
    if o.out:
        json.dump(results, open(o.out, "w"), indent=1)


if __name__ == "__main__":
    main()
