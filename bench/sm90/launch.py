"""Loads and launches compiled kernels through libcuda, on PyTorch's tensors and stream.

    kernel = Kernel("DIR/x.cubin", variant, values, maps)    # `variant` is an entry of build_variants.py's manifest
    kernel(); kernel.close()"""
import ctypes
import torch

cuda = ctypes.CDLL("libcuda.so.1")


def check(code, what):
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError("%s: %s" % (what, text.value.decode() if text.value else code))


def tensor_map(tensor, dims, strides, box, swizzle, steps=None):
    """A CUtensorMap of BF16 or bytes: `dims` and `box` in elements, innermost first, `strides` of all but the innermost. Returns its memory and address."""
    room = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(room) + 63) & ~63
    n, u64, u32 = len(dims), ctypes.c_uint64, ctypes.c_uint32
    kind, size, promotion = (9, 2, 2) if tensor.dtype == torch.bfloat16 else (0, 1, 3)
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), kind, n, ctypes.c_void_p(tensor.data_ptr()), (u64 * n)(*dims), (u64 * (n - 1))(*[size * s for s in strides]), (u32 * n)(*box),
        (u32 * n)(*(steps or [1] * n)), 0, {0: 0, 32: 1, 64: 2, 128: 3}[swizzle], promotion, 0), "cuTensorMapEncodeTiled %s %s %s" % (dims, strides, box))
    return room, address


class Kernel:
    def __init__(self, path, variant, values, maps):
        """`values`: ctypes arguments in order; `maps`: what tensor_map returned, behind them."""
        self.module, self.function, self.launch = ctypes.c_void_p(), ctypes.c_void_p(), variant["launch"]
        check(cuda.cuModuleLoad(ctypes.byref(self.module), path.encode()), "cuModuleLoad")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, variant["entry"].encode()), "cuModuleGetFunction")
        check(cuda.cuFuncSetAttribute(self.function, 8, self.launch["shared_bytes"]), "shared memory")
        self.keep = values, maps
        pointers = [ctypes.addressof(v) for v in values] + [address for _, address in maps]
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)

    def __call__(self):
        grid, block = self.launch["grid"], self.launch["block"]
        check(cuda.cuLaunchKernel(self.function, *grid, *block, self.launch["shared_bytes"],
                                  ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), self.arguments, None), "cuLaunchKernel")

    def close(self):
        cuda.cuModuleUnload(self.module)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else 0)
