"""Times at a kernel's own steady clock, and an end for kernels that have none.

    steady(kernel, soak=0.9, span=0.4)    # {"seconds": ..., "spread": ..., "mhz": ..., "watt": ...}"""
import os, time
import torch

try:
    import pynvml
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
except Exception:
    pynvml = None


def steady(f, soak, span):
    """Median seconds of one call at the steady clock, its spread (90th over 10th percentile), clock (MHz), power (W). The queue is never dry."""
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
