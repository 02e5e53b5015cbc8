"""Compiles variants of a CUDA kernel template with NVRTC, as the runtime would: prelude, source with its quoted includes put in place.

    python3 build_variants.py cases.json OUT_DIR        # needs libnvrtc, no GPU

`cases.json` is a list of {"name", "problem": {arguments of attention_problem}, "variants": [{parameter: value}]}. Writes OUT_DIR/<digest>.cubin per distinct
translation unit and OUT_DIR/manifest.json, which bench_variants.py runs on a machine with the GPU."""
import ctypes, functools, glob, hashlib, itertools, json, os, re, sys
from concurrent.futures import ProcessPoolExecutor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../kernel_templates")
CODES = {"f32": 1, "f16": 2, "bf16": 3, "e4m3": 4, "e4m3fnuz": 5, "e5m2": 6, "i8": 7, "u8": 8, "i32": 9, "i64": 10}


def to_python(tokens):
    """Consumes an expression up to its closing parenthesis; a ? b : c becomes (b if a else c)."""
    parts = [[]]
    while tokens and tokens[0] != ")":
        token = tokens.pop(0)
        if token == "(":
            parts[-1].append("(%s)" % to_python(tokens))
            tokens.pop(0)
        elif token in ("?", ":", ","):
            parts += [token, []]
        else:
            parts[-1].append({"&&": "and", "||": "or", "!": "not", "/": "//"}.get(token, token))
    return commas([part if isinstance(part, str) else " ".join(part) for part in parts])


def commas(words):
    if "," in words:
        at = words.index(",")
        return "%s, %s" % (ternary(words[:at]), commas(words[at + 1:]))
    return ternary(words)


def ternary(words):
    if "?" not in words:
        return words[0]
    at, depth = words.index("?"), 0
    for i in range(at, len(words)):
        depth += {"?": 1, ":": -1}.get(words[i], 0)
        if depth == 0:
            return "((%s) if (%s) else (%s))" % (ternary(words[at + 1:i]), words[at - 1], ternary(words[i + 1:]))


@functools.cache
def translate(text):
    tokens = re.findall(r'"[^"]*"|\w+|&&|\|\||[=!<>]=|[-+*/%<>!?:(),]', text)
    return compile(to_python(tokens), text, "eval")


def evaluate(expression, names):
    """The template expression language, by way of Python's (its / here is exact integer division of non-negative values)."""
    functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b), "round_up": lambda a, b: -(-a // b) * b}
    return eval(translate(str(expression)), {"__builtins__": {}}, {**functions, **names})


def attention_problem(batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv, causal=1, lse=0, layout="bhsd"):
    """The fields of an attention problem over contiguous tensors, [B, H, S, D] or [B, S, H, D]."""
    fields = {"dtype": "bf16", "batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seq_q": seq_q, "seq_kv": seq_kv, "dqk": dqk, "dv": dv,
              "causal": causal, "lse": lse}
    for name, heads, rows, width in (("q", heads_q, seq_q, dqk), ("k", heads_kv, seq_kv, dqk), ("v", heads_kv, seq_kv, dv), ("o", heads_q, seq_q, dv)):
        fields[name + "_stride_b"] = heads * rows * width
        fields[name + "_stride_h"] = rows * width if layout == "bhsd" else width
        fields[name + "_stride_s"] = width if layout == "bhsd" else heads * width
    return fields


def full_problem(operation, problem):
    if "layout" in problem or "q_stride_b" not in problem:
        problem = attention_problem(**problem)
    fields = {}
    for field in operation["fields"]:
        name = field["name"]
        fields[name] = problem[name] if name in problem else field["default"]
    for derived in operation.get("derived", []):
        fields[derived["name"]] = int(evaluate(derived["value"], fields))
    return fields


def variants_of(problem, kernel_name="sm90", units=132, template="attention_forward"):
    """All variants of a problem, by cost."""
    folder = os.path.join(ROOT, template)
    kernel = json.load(open(os.path.join(folder, kernel_name + ".json")))
    fields = full_problem(json.load(open(os.path.join(folder, template + ".json"))), problem)
    names = {**fields, "platform": "cuda", "arch": "sm_90a", "compute_units": units, "shared_bytes_max": 232448, "l2_bytes": 50 << 20}
    found = []
    for values in itertools.product(*[p["values"] for p in kernel["parameters"]]):
        variant = dict(zip((p["name"] for p in kernel["parameters"]), values))
        if all(evaluate(c["that"], {**names, **variant}) for c in kernel["constraints"]):
            found.append((evaluate(kernel["cost"], {**names, **variant}), len(found), variant))
    return [variant for _, _, variant in sorted(found)]


def flatten(path, seen):
    lines = []
    for line in open(path):
        match = re.match(r'\s*#include "(.*)"', line)
        if not match:
            lines.append(line)
            continue
        if match[1] not in seen:
            seen.add(match[1])
            lines += flatten(os.path.join(ROOT, match[1]), seen)
    return lines


def specialise(template, kernel_name, problem, variant, units, capability_shared=232448):
    folder = os.path.join(ROOT, template)
    operation = json.load(open(os.path.join(folder, template + ".json")))
    kernel = json.load(open(os.path.join(folder, kernel_name + ".json")))
    fields = full_problem(operation, problem)
    names = {**fields, "platform": "cuda", "arch": "sm_90a", "compute_units": units, "shared_bytes_max": capability_shared, "l2_bytes": 50 << 20}
    if not evaluate(kernel["when"], names):
        raise ValueError("the kernel is not for this problem: %s" % problem)
    parameters = {p["name"]: variant[p["name"]] if p["name"] in variant else int(evaluate(p["default"], names)) for p in kernel["parameters"]}
    for p in kernel["parameters"]:
        if parameters[p["name"]] not in p["values"]:
            raise ValueError("%s has no value %s" % (p["name"], parameters[p["name"]]))
    names.update(parameters)
    for constraint in kernel["constraints"]:
        if not evaluate(constraint["that"], names):
            raise ValueError(constraint["message"] + ": %s" % parameters)
    launch = {k: [int(evaluate(e, names)) for e in kernel["launch"][k]] for k in ("grid", "block")}
    launch["shared_bytes"] = int(evaluate(kernel["launch"]["shared_bytes"], names))
    if launch["shared_bytes"] > capability_shared:
        raise ValueError("needs %d bytes of shared memory: %s" % (launch["shared_bytes"], parameters))
    entry = "%s_%s" % (template, kernel_name)
    prelude = ["#define WHET_PLATFORM_CUDA 1", "#define WHET_ARCH_sm_90a 1", "#define WHET_ENTRY " + entry]
    prelude += ["#define WHET_%s %d" % (n.upper(), c) for n, c in CODES.items()]
    for name, value in fields.items():
        prelude.append("#define SHAPE_%s %s" % (name.upper(), "WHET_" + value.upper() if name == "dtype" else value))
    prelude += ["#define TUNE_%s %d" % (n.upper(), v) for n, v in parameters.items()]
    prelude += ["#define LAUNCH_BLOCK_%s %d" % (axis, launch["block"][i]) for i, axis in enumerate("XYZ")]
    prelude.append("#define LAUNCH_SHARED_BYTES %d" % launch["shared_bytes"])
    source = "\n".join(prelude) + "\n" + "".join(flatten(os.path.join(folder, kernel["source"]), set()))
    maps = [{**m, "box": [int(evaluate(e, names)) for e in m["box"]]} for m in kernel.get("tensor_maps", [])]
    changed = ",".join("%s=%d" % (n, v) for n, v in sorted(parameters.items()))
    return {"source": source, "entry": entry, "launch": launch, "maps": maps, "fields": fields, "variant": changed}


def nvrtc():
    # On the loader's path, or beside PyTorch.
    beside = glob.glob(os.path.join(sys.prefix, "lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.13"))
    try:
        library = ctypes.CDLL("libnvrtc.so.13")
    except OSError:
        library = ctypes.CDLL((beside + glob.glob("/usr/local/cuda*/lib64/libnvrtc.so.13"))[0])
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def compile_cubin(library, source, name):
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"--ptxas-options=-v", b"--diag-suppress=177"]
    status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if status:
        return None, log.value.decode()
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, cubin)
    return cubin.raw, log.value.decode()


def build(job):
    out, digest, source = job
    path = os.path.join(out, digest + ".cubin")
    if os.path.exists(path):
        return digest, open(path[:-6] + ".log").read(), True
    cubin, log = compile_cubin(nvrtc(), source, digest + ".cu")
    open(path[:-6] + ".log", "w").write(log)
    if cubin:
        open(path, "wb").write(cubin)
    return digest, log, cubin is not None


def main(cases_path, out, units=132, template="attention_forward", problem=lambda fields: fields):
    """`problem`: makes the fields of a problem of what a case says of it."""
    os.makedirs(out, exist_ok=True)
    manifest, jobs = [], {}
    for case in json.load(open(cases_path)):
        entry = {k: v for k, v in case.items() if k != "variants"}
        entry["variants"] = []
        for variant in case["variants"]:
            try:
                made = specialise(template, case.get("kernel", "sm90"), problem(case["problem"]), variant, units)
            except ValueError as error:
                print("skipped:", case["name"], error)
                continue
            source = made.pop("source")
            digest = hashlib.sha256(source.encode()).hexdigest()[:16]
            jobs[digest] = source
            entry["variants"].append({**made, "cubin": digest + ".cubin", "label": variant.get("label") or json.dumps(variant, sort_keys=True)})
        manifest.append(entry)

    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = {digest: (log, ok) for digest, log, ok in pool.map(build, [(out, *job) for job in jobs.items()])}
    failed = 0
    for case in manifest:
        for v in case["variants"]:
            log, ok = results[v["cubin"][:-6]]
            used = re.findall(r"Used (\d+) registers", log)
            spill = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
            notes = [line for line in log.splitlines() if "warning" in line.lower() or "C75" in line or "error" in line.lower()]
            if "-v" in sys.argv or not ok or notes or any(s != ("0", "0") for s in spill):
                print("%-28s %-90s %s regs %s spills %s %s" % (case["name"], v["variant"], v["cubin"][:8], used, spill, " | ".join(notes[:4])))
            failed += not ok
    keep = {v["cubin"] for c in manifest for v in c["variants"]}
    for case in manifest:
        case["variants"] = [v for v in case["variants"] if results[v["cubin"][:-6]][1]]
    json.dump(manifest, open(os.path.join(out, "manifest.json"), "w"), indent=1)
    print("%d translation units, %d failures" % (len(keep), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
