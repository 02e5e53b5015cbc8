"""Checks and times all variants of a manifest (build_variants.py) beside a peer, in one process, on the same tensors: what bench_variants.py and bench_fp8.py share.

    compare(arguments(__doc__), Problem)

`Problem(case, options)` holds the tensors of one case:
    peer          a call of the peer, or None where it declines
    kernel(variant, directory)  a launch.Kernel
    outputs       tensors that are poisoned with NaN before a check
    judge(row)    sets row["error"], row["ok"] and what else it knows from the outputs; returns a text for people

Every variant is checked in the run that times it. Times are medians at the kernel's own steady clock. The peer is timed before the variants and after
them, and ratios are to the mean of both. TFLOP/s = 2 (Dqk + Dv) x B x Hq x visible pairs."""
import argparse, json, math, os, random, sys, time
import torch
from timing import finish_or_die, steady
from truth import pairs


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--soak", type=float, default=0.9)
    parser.add_argument("--span", type=float, default=0.4)
    parser.add_argument("--out", default="")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--captured", default="")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further case starts")
    return parser.parse_args()


def text(flops, times):
    return "%7.1f TFLOP/s  %8.4f ms  %4d MHz %3.0f W" % (flops / times["seconds"] / 1e12, times["seconds"] * 1e3, times["mhz"], times["watt"])


def compare_variant(problem, variant, directory, name, flops, before, o):
    row, kernel = {"label": variant["label"], "variant": variant["variant"]}, None
    try:
        kernel = problem.kernel(variant, directory)
        for tensor in problem.outputs:
            tensor.fill_(math.nan)
        kernel()
        finish_or_die(name, row["label"])
        note = problem.judge(row)
        if not row["ok"] or o.no_time:
            print("%-26s %s %s  %s" % (name, "right" if row["ok"] else "WRONG", note, row["label"]), flush=True)
        if row["ok"] and not o.no_time:
            row.update(steady(kernel, o.soak, o.span))
            row["tflops"] = flops / row["seconds"] / 1e12
            ratio = "x%.3f" % (before["seconds"] / row["seconds"]) if before else ""
            print("%-26s %s spread %.3f %s %s  %s" % (name, text(flops, row), row["spread"], ratio, note, row["label"]), flush=True)
    except Exception as error:
        row["failed"] = str(error)
        print("FAILED", name, row["label"], error, flush=True)
    finally:
        if kernel:
            torch.cuda.synchronize()
            kernel.close()
    return row


def compare_case(problem, case, directory, o):
    f, name = case["variants"][0]["fields"], case["name"]
    flops = 2 * (f["dqk"] + f["dv"]) * f["batch"] * f["heads_q"] * pairs(f)
    before = steady(problem.peer, o.soak, o.span) if problem.peer and not o.no_time else None
    if before:
        print("%-26s %s  cuDNN" % (name, text(flops, before)), flush=True)
    rows = []
    for variant in case["variants"]:
        rows.append(compare_variant(problem, variant, directory, name, flops, before, o))
        if any(word in rows[-1].get("failed", "") for word in ("CUDA", "illegal")):
            return {"case": name, "fields": f, "rows": rows, "lost": True}  # the context is
    after = steady(problem.peer, o.soak, o.span) if before else None
    timed = [row for row in rows if "tflops" in row]
    for row in timed:
        row["ratio"] = (before["seconds"] + after["seconds"]) / 2 / row["seconds"] if before else None
    if timed:
        best = max(timed, key=lambda row: row["tflops"])
        print("%-26s BEST %7.1f %s (cuDNN %.1f before, %.1f after)  %s" % (name, best["tflops"], "x%.3f" % best["ratio"] if before else "", *(
            flops / times["seconds"] / 1e12 if times else 0 for times in (before, after)), best["label"]), flush=True)
    else:
        print("%-26s %d of %d right, worst error %.4f" % (name, sum(bool(row.get("ok")) for row in rows), len(rows), max((row.get("error", math.inf) for row in rows), default=0)), flush=True)
    return {"case": name, "fields": f, "flops": flops, "cudnn": before, "cudnn_again": after, "rows": rows}


def compare(o, make_problem):
    torch.zeros(1, device="cuda")
    began, results = time.time(), []
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), flush=True)
    for case in json.load(open(os.path.join(o.dir, "manifest.json"))):
        if not case["variants"]:
            continue
        if time.time() - began > o.budget:
            print("out of time before", case["name"])
            break
        torch.manual_seed(random.randrange(1 << 30))
        results.append(compare_case(make_problem(case, o), case, o.dir, o))
        if o.out:
            json.dump(results, open(o.out, "w"), indent=1)
        if "lost" in results[-1]:
            sys.exit(3)
