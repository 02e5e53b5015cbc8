#!/usr/bin/env python3
"""Host time of a warm launch through what Python users have: PyTorch, CuPy RawKernel, Triton, Triton autotuned. dispatch_cuda has Whet's and the driver's.

    python3 bench/dispatch/python_peers.py [--json FILE]
    python3 bench/dispatch/python_peers.py --start      # run it twice: what Triton needs for its first launch when its cache on disk has the kernel

Bursts of 256 launches that the driver's queue can hold, waited for outside of the time; the rows take turns; medians in nanoseconds."""
import argparse, json, statistics, sys, time
import torch

BURST, BURSTS = 256, 60


def start():
    """Context, tensor and PyTorch are there."""
    x = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    from triton_add import plain
    imported = time.perf_counter()
    plain[(1,)](x, 1024, BLOCK=1024)
    launched = time.perf_counter()
    torch.cuda.synchronize()
    print("Triton: import %.1f ms, then launched after %.1f ms; %s" % (
        (imported - begin) * 1e3, (launched - imported) * 1e3, "right" if x.sum().item() == 1024 else "WRONG"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--start", action="store_true")
    args = parser.parse_args()
    if args.start:
        return start()
    x = torch.zeros(1024, device="cuda")
    rows = {"torch add_": lambda: x.add_(1)}
    try:
        import cupy
        kernel = cupy.RawKernel('extern "C" __global__ void add1(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }', "add1")
        y = cupy.zeros(1024, dtype=cupy.float32)
        rows["CuPy RawKernel"] = lambda: kernel((4,), (256,), (y, 1024))
    except ImportError as error:
        print("no CuPy:", error)
    try:
        from triton_add import plain, tuned
        rows["Triton"] = lambda: plain[(1,)](x, 1024, BLOCK=1024)
        rows["Triton autotuned"] = lambda: tuned[lambda meta: ((1024 + meta["BLOCK"] - 1) // meta["BLOCK"],)](x, 1024)
    except ImportError as error:
        print("no Triton:", error)
    times = {name: [] for name in rows}
    for burst in range(-5, BURSTS):
        for name, launch in rows.items():
            begin = time.perf_counter_ns()
            for _ in range(BURST):
                launch()
            spent = (time.perf_counter_ns() - begin) / BURST
            torch.cuda.synchronize()
            if burst >= 0:
                times[name].append(spent)
    result = {name: statistics.median(t) for name, t in times.items()}
    for name, ns in result.items():
        print("%-44s %10.0f" % (name, ns))
    if args.json:
        json.dump(result, open(args.json, "w"), indent=1)
    sys.exit(0)


if __name__ == "__main__":
    main()
