"""Checks and times quantize_fp8's GPU kernel on a CUDA device, against what a copy reaches in the same run.

    python3 quantize_gpu.py [--kernel sm90] [--no-time] [--cubins DIR] [--out results.json]        # needs torch and cupy
    python3 quantize_gpu.py --build --cubins DIR [--kernel sm90]    # beforehand, on a machine with nvcc: compiling takes longest

A share of 100 % means: the bytes read and written once, at the rate at which torch copies 512 MiB ("long"), or just as many bytes ("equal"). Bytes, scales, means and shifts are compared
with torch in float64 for every element. A byte may differ where its element lies in the middle of two, to 1/500 of the step between them: a scale that puts one of
the 128 mantissas of BF16 there does so with every element that has it, 0.8 % of a binade."""
import argparse, hashlib, json, multiprocessing.pool, os, re, subprocess, sys

try:
    import torch
except ImportError:  # only --build can do without
    torch = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../kernel_templates")
CODES = {"f32": 1, "f16": 2, "bf16": 3, "e4m3": 4, "e4m3fnuz": 5, "e5m2": 6, "i8": 7, "u8": 8, "i32": 9, "i64": 10}


def expand(path, seen):
    lines = []
    for line in open(os.path.join(ROOT, path)):
        m = re.match(r'\s*#include "(.*)"', line)
        if m:
            if m[1] not in seen:
                seen.add(m[1])
                lines += expand(m[1], seen)
        elif line.strip() != "#pragma once":
            lines.append(line)
    return lines


def complete(**given):
    """The fields of a problem with contiguous tensors, and the derived values."""
    n = dict(dtype="bf16", to="e4m3", batch=1, heads=1, seq=1, dim=128, transpose=0, scale_rows=0, per_tensor=0, power_of_two=0, center=0, rotate=0,
             lse_shift=0, heads_mean=0, alignment=16, sampled_mean=0)
    n.update(given)
    h, s, d = n["heads"], n["seq"], n["dim"]
    rows, pitch = (d, -(-s // 16) * 16) if n["transpose"] else (s, d)
    for key, value in dict(x_stride_b=h * s * d, x_stride_h=s * d, x_stride_s=d, y_stride_b=h * rows * pitch, y_stride_h=rows * pitch,
                           y_stride_r=pitch).items():
        n.setdefault(key, value)
    chunks = max(1, -(-s // 256))
    n["mean_heads"] = n["heads_mean"] or h
    n["scale_blocks"] = max(1, -(-s // n["scale_rows"])) if n["scale_rows"] else 1
    n["statistics"] = int(n["center"] == 1 or n["scale_rows"] == 0)
    n["statistics_chunks"] = chunks
    n["workspace_words"] = 8 + n["batch"] * h * (4 + d * max(3 * (chunks + 1), 36)) if n["statistics"] else 8
    return n


class Variant:
    """One kernel with its parameters, as its .json has them."""

    def __init__(self, n, kernel="gpu", units=132, **parameters):
        self.n, self.kernel, self.parameters = n, kernel, parameters
        heads, dim = n["batch"] * n["heads"], n["dim"]
        if kernel == "gpu":
            threads = self.threads = parameters["threads"]
            self.shared = 1536 + max(threads * 32, dim * (threads // 4 + 4) if n["transpose"] else 0)
            blocks = units * ((768 if dim <= 128 else 512) // threads)
            self.grid = blocks if n["statistics"] else min(max(1, heads * -(-n["seq"] // (threads // 4))), blocks)
        else:
            slots, self.threads = parameters["slots"], 320
            self.shared = 1024 + (slots + 7) * dim * 4 + slots * (128 * (2 * dim + 16) + 256)
            self.grid = min(units * parameters["blocks"], heads * -(-n["seq"] // 128))

    def __str__(self):
        return self.kernel + ":" + ",".join("%s=%d" % p for p in sorted(self.parameters.items()))

    def source(self):
        n = self.n
        text = "#define WHET_PLATFORM_CUDA 1\n#define WHET_ARCH_sm_90a 1\n#define WHET_ENTRY quantize_fp8_%s\n" % self.kernel
        text += "#define LAUNCH_BLOCK_X %d\n#define LAUNCH_SHARED_BYTES %d\n#define WHET_BOUNDED_WAITS 1\n" % (self.threads, self.shared)
        text += "".join("#define TUNE_%s %d\n" % (k.upper(), v) for k, v in self.parameters.items())
        text += "".join("#define WHET_%s %d\n" % (k.upper(), v) for k, v in CODES.items())
        text += "".join("#define SHAPE_%s %s\n" % (k.upper(), CODES.get(v, v)) for k, v in n.items())
        return text + "".join(expand("quantize_fp8/%s.cu" % self.kernel, set()))

    def cubin(self, folder):
        return os.path.join(folder, hashlib.sha256(self.source().encode()).hexdigest()[:20] + ".cubin")

    def build(self, folder):
        path = self.cubin(folder)
        if not os.path.exists(path):
            with open(path + ".cu", "w") as f:
                f.write(self.source())
            subprocess.run(["nvcc", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "--diag-suppress=128,177", "-cubin", "-o", path,
                            path + ".cu"], check=True)
            os.remove(path + ".cu")


def variants(n, every):
    """What may compute a problem: the portable kernel and, where it fits, Hopper's; their defaults, or all that are worth a try."""
    gpu = [t for t in ((256, 512) if every else (512 if n["scale_rows"] == 128 else 256,)) if n["scale_rows"] <= t // 4]
    found = [Variant(n, threads=t) for t in gpu]
    if n["dtype"] == "bf16" and n["alignment"] == 16 and n["dim"] in (64, 128, 192) and not (
            n["per_tensor"] or n["lse_shift"] or n["transpose"] and (n["rotate"] or n["center"] or n["scale_rows"]) or n["sampled_mean"] and not n["scale_rows"]):
        default = {64: (3, 3), 128: (3, 2) if n["center"] == 1 and n["scale_rows"] else (4, 1), 192: (4, 1) if n["statistics"] else (3, 1)}[n["dim"]]
        lag = 28 if n["center"] == 1 and not n["sampled_mean"] else 20
        choices = [(*default, lag)]
        if every and n["statistics"] and not n["sampled_mean"]:
            choices += [(*default, other) for other in (14, 20, 28) if other != lag]
        if every and n["dim"] == 128:
            choices += [(3, 2, lag) if default == (4, 1) else (4, 1, lag)]
        found += [Variant(n, "sm90", slots=s, blocks=b, lag_mib=lag) for s, b, lag in choices]
    return found


class Kernel:
    def __init__(self, variant, folder):
        import cupy
        self.variant = variant
        if folder and os.path.exists(variant.cubin(folder)):
            self.module = cupy.RawModule(path=variant.cubin(folder))
        else:
            self.module = cupy.RawModule(code=variant.source(), backend="nvrtc", options=("-std=c++17", "-arch=sm_90a"))
        self.function = self.module.get_function("quantize_fp8_" + variant.kernel)
        self.function.max_dynamic_shared_size_bytes = variant.shared

    def launch(self, t):
        import numpy as np
        pointers = [np.uint64(t[name].data_ptr() if t[name] is not None else 0) for name in ("x", "mean_in", "y", "scale", "mean", "lse_shift", "workspace")]
        self.function((self.variant.grid,), (self.variant.threads,), (*pointers, np.float32(t["multiplier"]), np.float32(t["logit_scale"])),
                      shared_mem=self.variant.shared)


def rotation(dim, device):
    h = torch.ones(1, 1, dtype=torch.float64, device=device)
    part = 64 if dim == 192 else dim
    while h.shape[0] < part:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    h = h / part ** 0.5
    if dim == 192:
        h = torch.kron(torch.eye(3, dtype=torch.float64, device=device) - 2 / 3, h)
    d = (torch.arange(dim, device=device) & ~24) + 1
    return (1 - 2 * (((d * 0x9E3779B1) >> 31) & 1)).double()[:, None] * h.T


def tensors(n, kind):
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[n["dtype"]]
    x = torch.randn(n["batch"], n["heads"], n["seq"], n["dim"], device="cuda")
    if kind == "biased":
        x[..., ::24] += 30
    if kind == "outlier":
        x[..., ::24] *= 8
    if kind == "nan":
        x[:, :, n["seq"] // 3, n["dim"] // 2] = float("nan")
        x[:, :, n["seq"] // 2, n["dim"] - 1] = float("inf")
    if n["x_stride_s"] != n["dim"]:  # [batch, seq, heads, dim]
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    f32 = lambda *shape: torch.full(shape, float("nan"), device="cuda")
    blocks = n["scale_blocks"]
    return dict(x=x.to(dtype, memory_format=torch.preserve_format), mean_in=torch.randn(n["batch"], n["mean_heads"], n["dim"], device="cuda") if n["center"] == 2 or n["lse_shift"] else None,
                y=torch.full((n["batch"] * n["y_stride_b"],), 0xAA, dtype=torch.uint8, device="cuda"), scale=f32(n["batch"], n["heads"], blocks),
                mean=f32(n["batch"], n["heads"], n["dim"]) if n["center"] == 1 else None,
                lse_shift=f32(n["batch"], n["heads"], n["seq"]) if n["lse_shift"] else None,
                workspace=torch.zeros(n["workspace_words"], dtype=torch.int32, device="cuda") if n["statistics"] else None,
                multiplier=1.25, logit_scale=n["dim"] ** -0.5)


def mean_rows(n):
    """Those that the mean is taken over (quantize_fp8/gpu/mean_rows.h)."""
    if not n["sampled_mean"]:
        return list(range(n["seq"]))
    rows = []
    for chunk in range(-(-n["seq"] // 256)):
        first = 256 * chunk + (chunk * 0x9E3779B1 & 0xFFFFFFFF) // 2**28 * 16
        first = first if first < n["seq"] else 256 * chunk
        rows += range(first, min(first + 16, n["seq"]))
    return rows


TIES = []  # of each comparison: share of bytes that differ, farthest distance from a tie in steps


def verify(n, t):
    """What is wrong, or an empty text."""
    wrong = []
    x = t["x"].double()
    if n["center"] == 1:
        mean = x[:, :, mean_rows(n)].mean(2)
        mean = torch.where(mean.isfinite(), mean, 0)
        if not torch.allclose(t["mean"].double(), mean, rtol=1e-5, atol=1e-5, equal_nan=True):
            wrong.append("mean off by %g" % (t["mean"].double() - mean).abs().max())
        z = x - mean[:, :, None]
    else:
        z = x - t["mean_in"].double()[:, :, None] if n["center"] == 2 else x
    if n["lse_shift"]:
        mean = t["mean_in"].double().repeat_interleave(n["heads"] // n["mean_heads"], 1)
        shift = (x * mean[:, :, None]).sum(-1) * t["logit_scale"]
        if not torch.allclose(t["lse_shift"].double(), shift, rtol=1e-4, atol=1e-3, equal_nan=True):
            wrong.append("lse_shift off by %g" % (t["lse_shift"].double() - shift).abs().max())
    if n["rotate"]:
        z = z @ rotation(n["dim"], z.device)
    top = torch.where(z.isfinite(), z.abs(), 0).amax(-1)
    if n["per_tensor"]:
        top = top.amax().expand_as(top)
    rows = n["scale_rows"] or n["seq"]
    blocks = torch.nn.functional.pad(top, (0, -n["seq"] % rows)).view(*top.shape[:2], -1, rows).amax(-1)
    s = blocks * t["multiplier"] / 448
    if n["power_of_two"]:
        s = torch.exp2(torch.ceil(torch.log2(s)))
    s = torch.where(blocks > 0, s / t["multiplier"], 1)
    got = t["scale"].double()
    if not torch.allclose(got, s, rtol=1e-5, atol=0):
        wrong.append("scales differ in %d of %d" % ((~torch.isclose(got, s, rtol=1e-5)).sum(), s.numel()))
    full = got.repeat_interleave(rows, -1)[..., :n["seq"], None]
    exact = torch.where(z.isfinite(), z / full, float("nan"))
    want = exact.float().to(torch.float8_e4m3fn).float()
    pitch = n["y_stride_r"]
    if n["transpose"]:
        y = t["y"].view(n["batch"], n["heads"], n["dim"], pitch)[..., :n["seq"]].transpose(2, 3)
    else:
        y = t["y"].view(n["batch"], n["heads"], n["seq"], pitch)[..., :n["dim"]]
    y = y.contiguous().view(torch.float8_e4m3fn).float()
    if (y.isnan() != want.isnan()).any():
        wrong.append("NaN in %d places instead of %d" % (y.isnan().sum(), want.isnan().sum()))
    y, want = y.nan_to_num(0), want.nan_to_num(0)
    if ((y - want).abs() > 0.13 * want.abs() + 0.002).any():
        wrong.append("a byte is off by more than a step")
    differ = y != want
    if differ.any():
        step = (y[differ] - want[differ]).abs().double()
        # What f32 does to the row's sums: an ulp or so of its largest element, for small ones more than a share of their step.
        largest = torch.where(x.isfinite(), x.abs(), 0).amax(-1, keepdim=True) / full * (n["dim"] ** 0.5 if n["rotate"] else 1)
        rounding = 2**-21 * largest.expand_as(exact)[differ]
        steps = ((exact[differ] - (y[differ].double() + want[differ]) / 2).abs() - rounding).clamp(min=0) / step
        mantissas = t["x"][differ].float().frexp()[0].abs().unique().numel() if not n["rotate"] and not n["center"] else "-"
        TIES.append((differ.double().mean().item(), steps.max().item(), mantissas))
        if steps.max() > 0.002:
            wrong.append("a byte differs whose element is %.2g steps away from a tie" % steps.max())
        if differ.double().mean() > 2e-2:
            wrong.append("%.2g of the bytes differ" % differ.double().mean())
    if t["workspace"] is not None and t["workspace"].any():
        wrong.append("the workspace is not left as zeros")
    return "; ".join(wrong)


CHECKS = [
    dict(heads=3, seq=777), dict(heads=2, seq=1), dict(heads=2, seq=300, power_of_two=1, center=1), dict(heads=5, seq=1000, scale_rows=64, power_of_two=1),
    dict(heads=5, seq=1000, scale_rows=128, center=1), dict(heads=4, seq=2050, center=1, rotate=1), dict(heads=4, seq=513, dim=64, center=1, rotate=1, scale_rows=64),
    dict(heads=4, seq=513, dim=192, center=1, rotate=1, scale_rows=64), dict(heads=4, seq=513, dim=256, center=1, rotate=1, scale_rows=128), dict(heads=4, seq=600, dim=192, rotate=1),
    dict(heads=4, seq=600, dim=256, rotate=1, power_of_two=1), dict(heads=3, seq=777, transpose=1), dict(heads=3, seq=129, transpose=1, scale_rows=128), dict(heads=3, seq=100, dim=72, transpose=1, center=1),
    dict(heads=3, seq=100, dim=37, transpose=1, alignment=1), dict(heads=3, seq=100, dim=130, alignment=1, center=2), dict(heads=8, seq=500, heads_mean=2, lse_shift=1, rotate=1, scale_rows=64),
    dict(heads=8, seq=500, heads_mean=2, lse_shift=1), dict(heads=4, seq=333, batch=3, per_tensor=1, center=1), dict(heads=4, seq=333, batch=3, per_tensor=1, rotate=1, center=1),
    dict(heads=4, seq=333, dtype="f32", center=1, rotate=1, scale_rows=64), dict(heads=300, seq=70, center=1, rotate=1), dict(heads=2, seq=20000, center=1, rotate=1, power_of_two=1),
    dict(heads=3, seq=384, dim=64, transpose=1), dict(heads=2, seq=1000, dim=192, transpose=1), dict(heads=3, seq=500, center=2, rotate=1), dict(heads=3, seq=500, center=2, scale_rows=64),
    dict(heads=2, seq=900, dim=192, center=1, rotate=1), dict(heads=2, seq=900, dim=64, center=1), dict(heads=64, seq=2048, center=1, rotate=1, scale_rows=128), dict(heads=8, seq=4096, rotate=1),
    dict(heads=4, seq=2050, center=1, rotate=1, scale_rows=64, sampled_mean=1, power_of_two=1), dict(heads=40, seq=4096, center=1, scale_rows=128, sampled_mean=1),
    dict(heads=3, seq=700, dim=192, center=1, rotate=1, scale_rows=64, sampled_mean=1), dict(heads=2, seq=5000, dim=64, center=1, rotate=1, scale_rows=64, sampled_mean=1),
    dict(heads=2, seq=300, center=1, rotate=1, sampled_mean=1), dict(heads=5, seq=2049, center=1, sampled_mean=1),
    dict(heads=4, seq=520, x_stride_h=128, x_stride_s=512, center=1, rotate=1), dict(heads=4, seq=520, dim=64, rotate=1, scale_rows=64),
]
SHAPES = [dict(heads=32, seq=16384), dict(heads=16, seq=16384, dim=192), dict(heads=32, seq=16384, batch=4), dict(heads=128, seq=4096), dict(heads=32, seq=2048)]
TIMED = [
    ("q, rotated, 64 rows", dict(rotate=1, scale_rows=64, power_of_two=1)), ("q, 64 rows", dict(scale_rows=64, power_of_two=1)), ("q, one scale", dict()),
    ("k, centred, one scale", dict(center=1)), ("k, centred, 64 rows", dict(center=1, scale_rows=64, power_of_two=1)),
    ("k, centred, rotated, 64 rows", dict(center=1, rotate=1, scale_rows=64, power_of_two=1)), ("k, centred, rotated, one scale", dict(center=1, rotate=1, power_of_two=1)),
    ("k, centred on a sample, rotated, 64 rows", dict(center=1, rotate=1, scale_rows=64, power_of_two=1, sampled_mean=1)), ("k, centred on a sample, 64 rows", dict(center=1, scale_rows=64, power_of_two=1, sampled_mean=1)),
    ("v, transposed, one scale", dict(transpose=1)),
]


def milliseconds(call, span=0.06):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    total = 0.0
    while total < span * 1e3:
        begin.record()
        for _ in range(10):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 10)
        total += times[-1] * 10
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--checks", type=int, default=1, help="every n-th correctness case")
    parser.add_argument("--shapes", type=int, default=5, help="how many shapes are timed")
    parser.add_argument("--kernel", help="only this one: gpu or sm90")
    parser.add_argument("--cases", default="", help="of what is timed, only names with this in them")
    parser.add_argument("--out")
    parser.add_argument("--cubins", help="folder of --build")
    parser.add_argument("--build", action="store_true", help="compile into --cubins with nvcc for sm_90a, where there is no GPU")
    parser.add_argument("--jobs", type=int, default=1, help="compilations at a time")
    options = parser.parse_args()
    wanted = lambda n, every: [v for v in variants(n, every) if options.kernel in (None, v.kernel)]  # noqa: E731
    checks = [complete(**case) for case in CHECKS[::options.checks]]
    timed = [(shape, name, complete(**shape, **fields)) for shape in SHAPES[:options.shapes] for name, fields in TIMED if options.cases in name]
    if options.build:
        os.makedirs(options.cubins, exist_ok=True)
        every = [v for n in checks for v in wanted(n, False)] + [v for _, _, n in timed for v in wanted(n, True)]
        with multiprocessing.pool.ThreadPool(options.jobs) as pool:
            pool.map(lambda v: v.build(options.cubins), every)
        return 0
    torch.manual_seed(1)
    failed = 0
    tried = 0
    for n in checks:
        for v in wanted(n, False):
            kernel = Kernel(v, options.cubins)
            kinds = ("normal", "biased", "outlier", "nan") if n["center"] == 1 else ("normal", "nan")
            # Once more with a single block, which has nobody to wait for.
            for kind, grid in [(kind, v.grid) for kind in kinds] + ([("normal", 1)] if n["statistics"] and v.kernel == "sm90" else []):
                t = tensors(n, kind)
                v.grid = grid
                for _ in range(3):  # the workspace serves again
                    kernel.launch(t)
                torch.cuda.synchronize()
                wrong = verify(n, t)
                tried += 1
                failed += bool(wrong)
                if wrong:
                    print("FAILED", {k: n[k] for k in ("heads", "seq", "dim", "center", "rotate", "scale_rows", "transpose")}, v, kind, "%d blocks" % grid, wrong, flush=True)
    print("%d of %d cases failed" % (failed, tried), flush=True)
    if TIES:
        most = max(TIES, key=lambda t: t[0])
        print("bytes that differ: at most %.2f %% of a tensor (%s different mantissas); the farthest %.2g steps from a tie" % (100 * most[0], most[2], max(t[1] for t in TIES)), flush=True)
    results = []
    if not options.no_time:
        def copy_rate(elements):
            a = torch.randn(elements, device="cuda")
            b = torch.empty_like(a)
            return 8 * elements / milliseconds(lambda: b.copy_(a)) / 1e6

        copy = copy_rate(1 << 27)
        print("copy of 512 MiB: %.0f GB/s read and written" % copy)
        for shape, name, n in timed:
            t = tensors(n, "normal")
            same = copy_rate(3 * t["x"].numel() // 8)  # as many bytes, launch and ramps included
            best = {}
            for v in wanted(n, True):
                kernel = Kernel(v, options.cubins)
                kernel.launch(t)
                wrong = verify(n, t)  # what is timed is right
                failed += bool(wrong)
                if wrong:
                    print("FAILED", shape, name, v, wrong, flush=True)
                best[str(v)] = milliseconds(lambda: kernel.launch(t))
            v = min(best, key=best.get)
            rate = 3 * t["x"].numel() / best[v] / 1e6
            results.append(dict(shape=shape, case=name, variant=v, milliseconds=best, gb_per_s=rate, share_of_copy=rate / copy, share_of_equal_copy=rate / same))
            print("%-36s %-30s %7.1f us %5.1f %% of a long copy, %5.1f %% of an equal one  %s   (others: %s)" % (
                shape, name, best[v] * 1e3, 100 * rate / copy, 100 * rate / same, v, {k: round(m * 1e3, 1) for k, m in best.items() if k != v}), flush=True)
    if options.out:
        json.dump(dict(device=torch.cuda.get_device_name(), failed=failed, results=results), open(options.out, "w"), indent=1)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
