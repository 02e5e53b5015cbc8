"""Builds a CPU kernel of a template the way docs/templates.md describes, and runs its grid.

    op = Operation("attention_forward")
    kernel = Kernel(op, "cpu", fields, {"rows": 8}, compiler="clang++")
    kernel.run(pointers_and_scalars, threads=2, repeats=1)

Stands in for the library where a bench wants to be in one process with its Python peers.
"""
import ctypes
import hashlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "kernel_templates"
BUILD = pathlib.Path(tempfile.gettempdir()) / "whet_bench_cpu"
DTYPES = {"f32": 1, "f16": 2, "bf16": 3}
FEATURE_SETS = {
    "generic": [],
    "avx2": ["avx2", "fma", "f16c"],
    "avx512": ["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"],
    "avx512bf16": ["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl",
                   "avx512bf16"],
    "amx": ["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16",
            "amx-tile", "amx-bf16"],
}


def evaluate(expression, names, features):
    """The integer expressions of a template, for operands that are not negative."""
    text = re.sub(r"(.+?)\?(.+):(.+)", r"((\2) if (\1) else (\3))", expression) \
        if expression.count("?") == 1 and "(" not in expression.split("?")[0] else expression
    inner = re.compile(r"\(([^()?]+)\?([^()?:]+):([^()?:]+)\)")
    while inner.search(text):
        text = inner.sub(r"((\2) if (\1) else (\3))", text)
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    scope = dict(names)
    scope.update(min=min, max=max, has=lambda f: int(f in features),
                 ceil_div=lambda a, b: -(-a // b), round_up=lambda a, b: -(-a // b) * b,
                 next_pow2=lambda a: 1 << max(0, a - 1).bit_length())
    return int(eval(text, {"__builtins__": {}}, scope))


class Operation:
    def __init__(self, name):
        self.name = name
        self.folder = TEMPLATES / name
        self.spec = json.loads((self.folder / f"{name}.json").read_text())

    def complete(self, fields, features):
        names = {f["name"]: f.get("default") for f in self.spec["fields"]}
        names.update(fields)
        missing = [n for n, v in names.items() if v is None]
        if missing:
            raise ValueError(f"{self.name}: fields without a value: {missing}")
        for derived in self.spec.get("derived", []):
            names[derived["name"]] = evaluate(derived["value"], names, features)
        return names

    def kernel_spec(self, kernel):
        return json.loads((self.folder / f"{kernel}.json").read_text())

    def variants(self, kernel, fields, features):
        """Every assignment of the parameters that keeps the constraints."""
        spec = self.kernel_spec(kernel)
        names = self.complete(fields, features)
        parameters = spec["parameters"]
        for values in itertools.product(*[p["values"] for p in parameters]):
            chosen = dict(zip([p["name"] for p in parameters], values))
            if all(evaluate(c["that"], {**names, **chosen}, features)
                   for c in spec["constraints"]):
                yield chosen


def inline_includes(path, seen):
    lines = []
    for line in path.read_text().splitlines():
        match = re.match(r'#include "(.+)"', line)
        if not match:
            lines.append(line)
        elif match.group(1) not in seen:
            seen.add(match.group(1))
            lines += inline_includes(TEMPLATES / match.group(1), seen)
    return lines


def shared_object(compiler, options, sources):
    """Compiles once per content; the objects stay in the temporary directory."""
    BUILD.mkdir(exist_ok=True)
    text = "\n".join(sources)
    key = hashlib.sha256(json.dumps([compiler, options, text]).encode()).hexdigest()[:24]
    out = BUILD / f"{key}.so"
    if not out.exists():
        source = BUILD / f"{key}.cc"
        source.write_text(text)
        partial = BUILD / f"{key}.partial"
        # A sanitizer's library that is preloaded into this process is not meant for the compiler.
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        done = subprocess.run([compiler, "-std=c++20", "-fPIC", "-shared", *options, str(source),
                               "-o", str(partial)], capture_output=True, text=True,
                              env=environment)
        if done.returncode != 0 or done.stderr:
            raise RuntimeError(f"{compiler} {' '.join(options)} {source}\n{done.stderr[:4000]}")
        partial.rename(out)
    return str(out)


class Kernel:
    def __init__(self, operation, kernel, fields, parameters=None, compiler="clang++",
                 features="avx512", options=("-O3", "-Wall", "-Wextra")):
        flags = FEATURE_SETS[features]
        spec = operation.kernel_spec(kernel)
        names = operation.complete(fields, flags)
        chosen = {p["name"]: p["default"] for p in spec["parameters"]}
        chosen.update(parameters or {})
        everything = {**names, **chosen}
        for constraint in spec["constraints"]:
            if not evaluate(constraint["that"], everything, flags):
                raise ValueError(constraint["message"])
        launch = spec["launch"]
        self.grid = (ctypes.c_uint32 * 3)(*[evaluate(e, everything, flags)
                                            for e in launch["grid"]])
        self.shared_bytes = evaluate(launch["shared_bytes"], everything, flags)
        self.id = f"{kernel}:" + ",".join(f"{n}={v}" for n, v in chosen.items())
        entry = f"{operation.name}_{kernel}"
        prelude = ["#define WHET_PLATFORM_CPU 1", "#define WHET_ARCH_x86_64 1",
                   f"#define WHET_ENTRY {entry}"]
        codes = ["F32", "F16", "BF16", "E4M3", "E4M3FNUZ", "E5M2", "I8", "U8", "I32", "I64"]
        prelude += [f"#define WHET_{name} {i + 1}" for i, name in enumerate(codes)]
        prelude += [f"#define SHAPE_{n.upper()} {DTYPES.get(v, v)}" for n, v in names.items()]
        prelude += [f"#define TUNE_{n.upper()} {v}" for n, v in chosen.items()]
        prelude.append(f"#define LAUNCH_SHARED_BYTES {self.shared_bytes}")
        source = inline_includes(operation.folder / spec["source"], set())
        self.path = shared_object(compiler, [*options, *[f"-m{f}" for f in flags]],
                                  [*prelude, *source, ""])
        self.entry = ctypes.cast(getattr(ctypes.CDLL(self.path), entry), ctypes.c_void_p)

    def run(self, args, threads=1, repeats=1):
        """args: integers (addresses) and floats. Returns the seconds of each run."""
        values = [ctypes.c_float(a) if isinstance(a, float) else ctypes.c_void_p(a) for a in args]
        return self.run_pack([ctypes.addressof(v) for v in values], threads, repeats)

    def run_pack(self, addresses, threads=1, repeats=1):
        """As run, with the addresses of the arguments."""
        pack = (ctypes.c_void_p * len(addresses))(*addresses)
        seconds = (ctypes.c_double * repeats)()
        runner().RunGrid(self.entry, self.grid, pack, ctypes.c_int64(self.shared_bytes), threads,
                         repeats, seconds)
        return list(seconds)


def runner():
    source = pathlib.Path(__file__).with_name("grid_runner.cc")
    text = source.read_text().replace("../../kernel_templates", str(TEMPLATES))
    path = shared_object("g++", ["-O2", "-pthread"], [text])
    return ctypes.CDLL(path)
