"""Checks and times compiled attention variants against PyTorch's cuDNN back end, in one process, on the same tensors.

    python3 bench_variants.py DIR [--soak 0.9] [--span 0.4] [--out results.json] [--no-time] [--captured FILE.safetensors]

DIR comes from build_variants.py. Every variant is checked in the run that times it: output poisoned first, every element compared with
cuDNN, sampled rows with float64. Times are medians at the kernel's own steady clock: soak, then time, the queue never dry. cuDNN is timed
before the variants and after them, and ratios are to the mean of both.
TFLOP/s = 2 (Dqk + Dv) x B x Hq x visible pairs."""
import argparse, ctypes, json, math, os, random, struct, sys, time
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

cuda = ctypes.CDLL("libcuda.so.1")
try:
    import pynvml
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
except Exception:
    pynvml = None


def check(code, what):
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError("%s: %s" % (what, text.value.decode() if text.value else code))


def tensor_map(tensor, strides, dims, box):
    """A CUtensorMap of BF16 with 128-byte swizzle; dims and strides are D, S, H, B (elements)."""
    room = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(room) + 63) & ~63
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), 9, 4, ctypes.c_void_p(tensor.data_ptr()), (u64 * 4)(*dims), (u64 * 3)(*[2 * s for s in strides]), (u32 * 4)(*box),
        (u32 * 4)(1, 1, 1, 1), 0, 3, 2, 0), "cuTensorMapEncodeTiled %s %s %s" % (dims, strides, box))
    return room, address


class Kernel:
    def __init__(self, path, variant, tensors, scale):
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoad(ctypes.byref(self.module), path.encode()), "cuModuleLoad")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, variant["entry"].encode()), "cuModuleGetFunction")
        launch, f = variant["launch"], variant["fields"]
        check(cuda.cuFuncSetAttribute(self.function, 8, launch["shared_bytes"]), "shared memory")
        self.launch = launch
        values, self.keep = [], []
        for name in ("q", "k", "v", "o", "lse"):
            values.append(ctypes.c_void_p(tensors[name].data_ptr() if tensors[name] is not None else 0))
        values.append(ctypes.c_float(scale))
        pointers = [ctypes.addressof(v) for v in values]
        for m in variant["maps"]:
            a = m["argument"]
            heads, rows = (f["heads_q"], f["seq_q"]) if a in "qo" else (f["heads_kv"], f["seq_kv"])
            width = f["dqk"] if a in "qk" else f["dv"]
            room, address = tensor_map(tensors[a], [f["%s_stride_%s" % (a, d)] for d in "shb"], [width, rows, heads, f["batch"]], m["box"])
            self.keep.append(room)
            pointers.append(address)
        self.keep.append(values)
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)

    def __call__(self):
        grid, block = self.launch["grid"], self.launch["block"]
        check(cuda.cuLaunchKernel(self.function, *grid, *block, self.launch["shared_bytes"],
                                  ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), self.arguments, None), "cuLaunchKernel")

    def close(self):
        cuda.cuModuleUnload(self.module)


def steady(f, soak, span):
    """Median seconds of one call at the steady clock, its spread (90th over 10th percentile), clock (MHz), power (W)."""
    f(); torch.cuda.synchronize()
    a, b = torch.cuda.Event(True), torch.cuda.Event(True)
    a.record(); [f() for _ in range(3)]; b.record(); torch.cuda.synchronize()
    per = max(1, int(2.0 / max(a.elapsed_time(b) / 3, 1e-3)))
    events, start, clock, power = [], time.time(), [], []
    while time.time() - start < soak + span:
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record(); [f() for _ in range(per)]; b.record()
        events.append((a, b, time.time() - start))
        if len(events) > 8:
            events[-8][1].synchronize()
        if pynvml and time.time() - start > soak and len(clock) < 8:
            clock.append(pynvml.nvmlDeviceGetClockInfo(gpu, 1))
            power.append(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) / per / 1000 for a, b, w in events if w > soak)
    n = len(times)
    return {"seconds": times[n // 2], "spread": times[n * 9 // 10] / times[n // 10] - 1, "mhz": sorted(clock)[len(clock) // 2] if clock else 0,
            "watt": sorted(power)[len(power) // 2] if power else 0}


def finish_or_die(*what, seconds=5):
    """A kernel that waits for ever cannot be cancelled: say which, and end the process."""
    done, start = torch.cuda.Event(), time.time()
    done.record()
    while not done.query():
        if time.time() - start > seconds:
            print("HANGS", *what, flush=True)
            os._exit(4)
        time.sleep(0.001)


def view(flat, f, name, heads, rows, width):
    return flat.as_strided((f["batch"], heads, rows, width), [f["%s_stride_%s" % (name, d)] for d in "bhs"] + [1])


def reference_rows(q, k, v, f, scale, b, h, rows):
    """Float64 attention and log-sum-exp of some rows of one head."""
    kk, vv = k[b, h // (f["heads_q"] // f["heads_kv"])].double(), v[b, h // (f["heads_q"] // f["heads_kv"])].double()
    s = q[b, h, rows].double() @ kk.T * scale
    if f["causal"]:
        s = s.masked_fill(torch.arange(f["seq_kv"], device="cuda")[None] > rows[:, None] + f["seq_kv"] - f["seq_q"], -math.inf)
    lse = torch.logsumexp(s, 1)
    p = torch.exp(s - torch.where(lse == -math.inf, 0.0, lse)[:, None])
    return p @ vv, lse


def sample_rows(f):
    n = f["seq_q"]
    rows = {0, 1, n - 1, n // 2} | {e + d for e in (64, 128, 192, 256, n // 64 * 64, n // 128 * 128, n // 192 * 192) for d in (-1, 0, 1)}
    rows |= {random.randrange(n) for _ in range(24)}
    return torch.tensor(sorted(r for r in rows if 0 <= r < n), device="cuda")


def pairs(f):
    if not f["causal"]:
        return f["seq_q"] * f["seq_kv"]
    return sum(max(0, min(f["seq_kv"], i + 1 + f["seq_kv"] - f["seq_q"])) for i in range(f["seq_q"]))


def captured(path, f):
    """Post-RoPE Q, K, V of a decoder layer, heads repeated to the problem's count."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header, result = json.loads(raw[8:8 + n]), []
    for name, heads in (("q", f["heads_q"]), ("k", f["heads_kv"]), ("v", f["heads_kv"])):
        start, end = header[name]["data_offsets"]
        t = torch.frombuffer(bytearray(raw[8 + n + start:8 + n + end]), dtype=torch.bfloat16).view(header[name]["shape"]).cuda()
        t = t[:, :, :f["seq_q"]]
        result.append(t.repeat(f["batch"], -(-heads // t.shape[1]), 1, 1)[:, :heads].contiguous())
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--soak", type=float, default=0.9)
    parser.add_argument("--span", type=float, default=0.4)
    parser.add_argument("--out", default="")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--captured", default="")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further case starts")
    o = parser.parse_args()
    torch.zeros(1, device="cuda")
    began, results = time.time(), []
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), flush=True)
    for case in json.load(open(os.path.join(o.dir, "manifest.json"))):
        if not case["variants"]:
            continue
        if time.time() - began > o.budget:
            print("out of time before", case["name"])
            break
        f = case["variants"][0]["fields"]
        torch.manual_seed(random.randrange(1 << 30))
        shapes = {"q": (f["heads_q"], f["seq_q"], f["dqk"]), "k": (f["heads_kv"], f["seq_kv"], f["dqk"]), "v": (f["heads_kv"], f["seq_kv"], f["dv"]), "o": (f["heads_q"], f["seq_q"], f["dv"])}
        flat = {n: torch.randn(f["batch"] * math.prod(s), device="cuda").bfloat16() for n, s in shapes.items()}
        t = {n: view(flat[n], f, n, *s) for n, s in shapes.items()}
        if o.captured:
            for n, data in zip("qkv", captured(o.captured, f)):
                t[n].copy_(data)
        lse = torch.empty(f["batch"], f["heads_q"], f["seq_q"], device="cuda") if f["lse"] else None
        scale = case.get("scale", 1 / math.sqrt(f["dqk"]))
        flops = 2 * (f["dqk"] + f["dv"]) * f["batch"] * f["heads_q"] * pairs(f)
        square = f["seq_q"] == f["seq_kv"]

        def peer():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=bool(f["causal"]), scale=scale, enable_gqa=f["heads_q"] != f["heads_kv"])
        want, base = None, None
        if scale > 0 and (square or not f["causal"]):
            try:
                want = peer().float()
            except Exception as error:
                print("cuDNN declines", case["name"], str(error).splitlines()[0])
        heads = sorted({(b, h) for b in (0, f["batch"] - 1) for h in (0, f["heads_q"] - 1)} | {(random.randrange(f["batch"]), random.randrange(f["heads_q"])) for _ in range(2)})
        samples = []
        for b, h in heads:
            rows = sample_rows(f)
            samples.append((b, h, rows, *reference_rows(t["q"], t["k"], t["v"], f, scale, b, h, rows)))
        if want is not None and not o.no_time:
            base = steady(peer, o.soak, o.span)
            print("%-26s cuDNN %7.1f TFLOP/s  %8.4f ms  %4d MHz %3.0f W" % (case["name"], flops / base["seconds"] / 1e12, base["seconds"] * 1e3, base["mhz"], base["watt"]), flush=True)
        rows_out = []
        for variant in case["variants"]:
            row = {"label": variant["label"], "variant": variant["variant"]}
            kernel = None
            try:
                kernel = Kernel(os.path.join(o.dir, variant["cubin"]), variant, {**{n: flat[n] for n in flat}, "lse": lse}, scale)
                flat["o"].fill_(math.nan)
                if lse is not None:
                    lse.fill_(math.nan)
                kernel()
                finish_or_die(case["name"], row["label"])
                bad = int((~torch.isfinite(t["o"])).sum())
                num = den = lse_error = worst = 0.0
                for b, h, rows, ref, ref_lse in samples:
                    got = t["o"][b, h, rows].double()
                    num += float(((got - ref) ** 2).sum()); den += float((ref ** 2).sum())
                    worst = max(worst, float(((got - ref).norm(dim=1) / ref.norm(dim=1).clamp(min=1e-30)).max()))
                    if lse is not None:
                        got_lse, same = lse[b, h, rows].double(), None
                        same = (got_lse == ref_lse) | ((got_lse - ref_lse).abs() < 1e-3 * (1 + ref_lse.abs()))
                        lse_error += int((~same).sum())
                row["error"], row["worst_row"] = math.sqrt(num / max(den, 1e-30)), worst
                row["against_cudnn"] = float((t["o"].float() - want).norm() / want.norm()) if want is not None else None
                row["ok"] = bad == 0 and row["error"] < 0.01 and worst < 0.03 and lse_error == 0 and (want is None or row["against_cudnn"] < 0.01)
                if not row["ok"]:
                    print("WRONG", case["name"], row["label"], "non-finite", bad, "error", row["error"], "worst row", worst, "cudnn", row["against_cudnn"], "lse", lse_error)
                if row["ok"] and not o.no_time:
                    row.update(steady(kernel, o.soak, o.span))
                    row["tflops"] = flops / row["seconds"] / 1e12
                    print("%-26s %7.1f TFLOP/s  %8.4f ms  %4d MHz %3.0f W spread %.3f err %.4f  %s" % (case["name"], row["tflops"], row["seconds"] * 1e3, row["mhz"], row["watt"], row["spread"], row["error"], row["label"]), flush=True)
            except Exception as error:
                row["failed"] = str(error)
                print("FAILED", case["name"], row["label"], error, flush=True)
                if "CUDA" in str(error) or "illegal" in str(error):
                    json.dump(results, open(o.out, "w"), indent=1) if o.out else None
                    sys.exit(3)
            finally:
                if kernel:
                    torch.cuda.synchronize(); kernel.close()
            rows_out.append(row)
        again = steady(peer, o.soak, o.span) if base else None
        peer_seconds = (base["seconds"] + again["seconds"]) / 2 if base else 0
        results.append({"case": case["name"], "fields": f, "flops": flops, "cudnn": base, "cudnn_again": again, "rows": rows_out})
        timed = [r for r in rows_out if "tflops" in r]
        if timed:
            for row in timed:
                row["ratio"] = peer_seconds / row["seconds"] if base else None
            best = max(timed, key=lambda r: r["tflops"])
            print("%-26s BEST %7.1f %s (cuDNN %.1f before, %.1f after)  %s" % (
                case["name"], best["tflops"], "x%.3f" % best["ratio"] if base else "", *(flops / r["seconds"] / 1e12 if r else 0 for r in (base, again)), best["label"]), flush=True)
        else:
            print("%-26s %d of %d right, worst error %.4f" % (case["name"], sum(bool(r.get("ok")) for r in rows_out), len(rows_out), max((r.get("error", math.inf) for r in rows_out), default=0)), flush=True)
        del flat, t, want, lse, samples
    if o.out:
        json.dump(results, open(o.out, "w"), indent=1)


if __name__ == "__main__":
    main()
