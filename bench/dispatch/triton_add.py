"""The smallest kernel in Triton, plain and autotuned (Triton reads a kernel's source from its file)."""
import triton
import triton.language as tl


@triton.jit
def plain(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (256, 1024)], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
