"""FP8 attention of libwhet.so for the benches, through ctypes.

    whet = WhetFp8("libwhet.so", platform="cpu")
    attention = whet.attention(batch=1, heads_q=12, heads_kv=2, seq_q=2048, seq_kv=2048, dqk=128, dv=128, causal=True, recipe="center=1,rotate=1,scale_rows=0")
    attention.tune(q_ptr, k_ptr, v_ptr)                  # instead of a recipe: which one these tensors want
    attention.run(q_ptr, k_ptr, v_ptr, o_ptr)
    attention.recipe(), attention.times(q_ptr, k_ptr, v_ptr, o_ptr)
"""
import ctypes as c, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../attention"))
from whet_ctypes import AttentionArgs, Whet  # noqa: E402


class Fp8Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("accuracy", c.c_int32), ("recipe", c.c_char_p)]


class Fp8Times(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("quantize_q_ns", c.c_double), ("quantize_k_ns", c.c_double),
                ("quantize_v_ns", c.c_double), ("attention_ns", c.c_double)]


class WhetFp8(Whet):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        pointer, lib = c.c_void_p, self.lib
        lib.whet_fp8_attention_open.argtypes = [pointer, c.POINTER(AttentionArgs), c.POINTER(Fp8Options), c.POINTER(pointer)]
        lib.whet_fp8_attention_close.argtypes = [pointer]
        lib.whet_fp8_attention_close.restype = None
        lib.whet_fp8_attention_tune.argtypes = [pointer] * 5
        lib.whet_fp8_attention_keys.argtypes = [pointer] * 4
        lib.whet_fp8_attention_forward.argtypes = [pointer] * 5
        lib.whet_fp8_attention_run.argtypes = [pointer] * 7
        lib.whet_fp8_attention_time.argtypes = [pointer] * 6 + [c.POINTER(Fp8Times), pointer]
        lib.whet_fp8_attention_recipe.argtypes = [pointer]
        lib.whet_fp8_attention_recipe.restype = c.c_char_p

    def attention(self, recipe=None, accuracy=1, dtype="bf16", **shape):
        return Fp8Attention(self, self.attention_args(None, None, None, None, dtype=dtype, **shape), recipe, accuracy)


class Fp8Attention:
    def __init__(self, whet, args, recipe, accuracy):
        self.whet, self.lib = whet, whet.lib
        self.handle = c.c_void_p()
        options = Fp8Options(c.sizeof(Fp8Options), accuracy, recipe.encode() if recipe else None)
        whet._check(self.lib.whet_fp8_attention_open(whet.handle, c.byref(args), c.byref(options), c.byref(self.handle)))

    def close(self):
        self.lib.whet_fp8_attention_close(self.handle)
        self.handle = None

    def tune(self, q, k, v, stream=None):
        self.whet._check(self.lib.whet_fp8_attention_tune(self.handle, q, k, v, stream))

    def keys(self, k, v, stream=None):
        self.whet._check(self.lib.whet_fp8_attention_keys(self.handle, k, v, stream))

    def forward(self, q, o, stream=None):
        self.whet._check(self.lib.whet_fp8_attention_forward(self.handle, q, o, None, stream))

    def run(self, q, k, v, o, stream=None):
        self.whet._check(self.lib.whet_fp8_attention_run(self.handle, q, k, v, o, None, stream))

    def recipe(self):
        return self.lib.whet_fp8_attention_recipe(self.handle).decode()

    def times(self, q, k, v, o, stream=None):
        """Nanoseconds of each part: host medians, launch and wait included."""
        t = Fp8Times(c.sizeof(Fp8Times))
        self.whet._check(self.lib.whet_fp8_attention_time(self.handle, q, k, v, o, None, c.byref(t), stream))
        return {name: getattr(t, name) for name, _ in Fp8Times._fields_[1:]}
