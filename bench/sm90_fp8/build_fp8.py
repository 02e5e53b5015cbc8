"""Compiles variants of the FP8 Hopper attention kernel with NVRTC, as bench/sm90/build_variants.py does for BF16.

    python3 build_fp8.py cases.json OUT_DIR [-v]        # needs libnvrtc, no GPU"""
import hashlib, json, os, re, sys
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../sm90"))
import build_variants as base


def fp8_problem(batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv, causal=1, lse=0, layout="bhsd", q_scale_rows=0, k_scale_rows=0, lse_shift=0, accuracy=1):
    """The fields of an FP8 problem: q, k and o contiguous as [B, H, S, D] or [B, S, H, D], v as [B, H, D, S] with rows padded to 16 bytes."""
    f = {"dtype": "e4m3", "batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seq_q": seq_q, "seq_kv": seq_kv, "dqk": dqk, "dv": dv, "causal": causal, "lse": lse,
         "q_scale_rows": q_scale_rows, "k_scale_rows": k_scale_rows, "lse_shift": lse_shift, "accuracy": accuracy}
    for name, heads, rows, width in (("q", heads_q, seq_q, dqk), ("k", heads_kv, seq_kv, dqk), ("o", heads_q, seq_q, dv)):
        f[name + "_stride_b"] = heads * rows * width
        f[name + "_stride_h"] = rows * width if layout == "bhsd" else width
        f[name + "_stride_s"] = width if layout == "bhsd" else heads * width
    f["v_stride_d"] = -(-seq_kv // 16) * 16
    f["v_stride_h"] = dv * f["v_stride_d"]
    f["v_stride_b"] = heads_kv * f["v_stride_h"]
    return f


def main(cases_path, out, units=132):
    os.makedirs(out, exist_ok=True)
    manifest, jobs = [], {}
    for case in json.load(open(cases_path)):
        entry = {k: v for k, v in case.items() if k != "variants"}
        entry["variants"] = []
        for variant in case["variants"]:
            try:
                made = base.specialise("attention_forward_fp8", "sm90", fp8_problem(**case["problem"]), variant, units)
            except ValueError as error:
                print("skipped:", case["name"], error)
                continue
            source = made.pop("source")
            digest = hashlib.sha256(source.encode()).hexdigest()[:16]
            jobs[digest] = source
            entry["variants"].append({**made, "cubin": digest + ".cubin", "label": json.dumps({k: v for k, v in variant.items()}).replace('"', "")})
        manifest.append(entry)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = {digest: (log, ok) for digest, log, ok in pool.map(base.build, [(out, *job) for job in jobs.items()])}
    failed, told = 0, set()
    for case in manifest:
        for v in case["variants"]:
            log, ok = results[v["cubin"][:-6]]
            used = re.findall(r"Used (\d+) registers", log)
            spill = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
            notes = [line for line in log.splitlines() if "warning" in line.lower() or "C75" in line or "error" in line.lower()]
            failed += not ok
            if v["cubin"] not in told and ("-v" in sys.argv or not ok or notes or any(s != ("0", "0") for s in spill)):
                told.add(v["cubin"])
                print("%-24s %s %s regs %s spills %s %s" % (case["name"], v["label"], v["cubin"][:8], used, spill, " | ".join(notes[:4])))
        case["variants"] = [v for v in case["variants"] if results[v["cubin"][:-6]][1]]
    json.dump(manifest, open(os.path.join(out, "manifest.json"), "w"), indent=1)
    print("%d translation units, %d failures" % (len(jobs), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
