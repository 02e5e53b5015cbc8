"""The C interface of libwhet.so for the benches, through ctypes: tensors are handed over as addresses.

    whet = Whet("bazel-bin/libwhet.so", platform="cpu")
    whet.attention(q_ptr, k_ptr, v_ptr, o_ptr, dtype="bf16", batch=1, heads_q=8, heads_kv=8, seq_q=1024, seq_kv=1024, dqk=128, dv=128, causal=True)
    whet.events[-1]   # what the first call did
"""

import ctypes as c

PLATFORMS = {"cpu": 1, "hip": 2, "cuda": 3}
DTYPES = {"f32": 1, "f16": 2, "bf16": 3}


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("cache_directory", c.c_char_p), ("cache_policy", c.c_char_p),
                ("packs", c.c_char_p), ("tuning", c.c_char_p), ("tuning_budget_s", c.c_double),
                ("cpu_threads", c.c_int32)]


class AttentionArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("dtype", c.c_int32), ("causal", c.c_int32),
                ("batch", c.c_int64), ("heads_q", c.c_int64), ("heads_kv", c.c_int64), ("seq_q", c.c_int64),
                ("seq_kv", c.c_int64), ("dqk", c.c_int64), ("dv", c.c_int64),
                ("q", c.c_void_p), ("k", c.c_void_p), ("v", c.c_void_p), ("o", c.c_void_p), ("lse", c.c_void_p),
                ("scale", c.c_float),
                ("q_strides", c.c_int64 * 3), ("k_strides", c.c_int64 * 3), ("v_strides", c.c_int64 * 3),
                ("o_strides", c.c_int64 * 3)]


class Event(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("problem", c.c_char_p), ("target", c.c_char_p), ("variant", c.c_char_p),
                ("variant_origin", c.c_char_p), ("code_origin", c.c_char_p), ("note", c.c_char_p),
                ("seconds", c.c_double), ("tuning_seconds", c.c_double), ("gain", c.c_double)]


EVENT_FUNCTION = c.CFUNCTYPE(None, c.POINTER(Event), c.c_void_p)


class WhetError(RuntimeError):
    pass


class Whet:
    def __init__(self, library, platform, device=0, cache_directory=None, tuning=None, tuning_budget_s=0, cpu_threads=0):
        self.lib = c.CDLL(library)
        self.lib.whet_last_error.restype = c.c_char_p
        self.lib.whet_runtime_open.argtypes = [c.POINTER(Options), c.c_int32, c.c_int32, c.POINTER(c.c_void_p)]
        self.lib.whet_runtime_close.argtypes = [c.c_void_p]
        self.lib.whet_attention_forward.argtypes = [c.c_void_p, c.POINTER(AttentionArgs), c.c_void_p]
        self.lib.whet_event_callback.argtypes = [c.c_void_p, EVENT_FUNCTION, c.c_void_p]
        options = Options(c.sizeof(Options), _bytes(cache_directory), None, None, _bytes(tuning), tuning_budget_s,
                          cpu_threads)
        self.handle = c.c_void_p()
        self._check(self.lib.whet_runtime_open(c.byref(options), PLATFORMS[platform], device, c.byref(self.handle)))
        self.events = []
        self._callback = EVENT_FUNCTION(self._on_event)  # kept alive as long as the runtime
        self._check(self.lib.whet_event_callback(self.handle, self._callback, None))

    def close(self):
        self.lib.whet_runtime_close(self.handle)
        self.handle = None

    def attention_args(self, q, k, v, o, dtype, batch, heads_q, heads_kv, seq_q, seq_kv, dqk, dv, causal, lse=None, scale=0.0):
        return AttentionArgs(c.sizeof(AttentionArgs), DTYPES[dtype], int(causal), batch, heads_q, heads_kv, seq_q, seq_kv,
                             dqk, dv, q, k, v, o, lse, scale)

    def launch(self, args, stream=None):
        """Launches attention as `args` says; build them once, outside of what is timed."""
        self._check(self.lib.whet_attention_forward(self.handle, c.byref(args), stream))

    def attention(self, *tensors, stream=None, **shape):
        self.launch(self.attention_args(*tensors, **shape), stream)

    def _check(self, status):
        if status != 0:
            raise WhetError(self.lib.whet_last_error().decode())

    def _on_event(self, event, _):
        e = event.contents
        self.events.append({name: (value.decode() if isinstance(value, bytes) else value)
                            for name, value in ((n, getattr(e, n)) for n, _ in Event._fields_)})


def _bytes(text):
    return None if text is None else str(text).encode()
