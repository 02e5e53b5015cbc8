#!/usr/bin/env python3
"""Compiles one kernel of a template through one GPU compiler, with no GPU, and prints what the code object uses.

  compile_template.py kernel_templates/attention_forward portable --arch gfx942 --compiler hiprtc --library /path/libhiprtc.so.7 \
      --shape dtype=bf16,batch=1,... --tune block_q=64 --block 256 --shared 33792 [-o out.hsaco] [--listing out.s]

--compiler: hiprtc or nvrtc (with --library) or clang. A development aid: the library itself specialises templates through its
own compilers; this script knows no expressions, so block and shared bytes are given by hand.
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile

DTYPES = {'f32': 1, 'f16': 2, 'bf16': 3, 'e4m3': 4, 'e4m3fnuz': 5, 'e5m2': 6, 'i8': 7, 'u8': 8, 'i32': 9, 'i64': 10}


def expand(path, root, seen):
    """The source with each quoted include put in place once."""
    out = []
    for number, line in enumerate(open(path), 1):
        m = re.match(r'\s*#include "(.*)"', line)
        if m:
            if m[1] not in seen:
                seen.add(m[1])
                inner = os.path.join(root, m[1])
                out += ['#line 1 "%s"\n' % m[1], expand(inner, root, seen), '#line %d "%s"\n' % (number + 1, os.path.basename(path))]
        elif line.strip() != '#pragma once':
            out.append(line)
    return ''.join(out)


def prelude(platform, arch, entry, shape, tune, block, shared):
    lines = ['#define WHET_PLATFORM_%s 1' % platform, '#define WHET_ARCH_%s 1' % re.sub(r'\W', '_', arch), '#define WHET_ENTRY ' + entry]
    lines += ['#define WHET_%s %d' % (k.upper(), v) for k, v in DTYPES.items()]
    for k, v in shape.items():
        lines.append('#define SHAPE_%s %s' % (k.upper(), DTYPES.get(v, v)))
    lines += ['#define TUNE_%s %s' % (k.upper(), v) for k, v in tune.items()]
    lines += ['#define LAUNCH_BLOCK_X %d' % block, '#define LAUNCH_BLOCK_Y 1', '#define LAUNCH_BLOCK_Z 1', '#define LAUNCH_SHARED_BYTES %d' % shared]
    return '\n'.join(lines) + '\n'


def rtc(library, prefix, text, options, get_code):
    lib = ctypes.CDLL(library)
    call = lambda name, *a: getattr(lib, prefix + name)(*a)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    call('CreateProgram', ctypes.byref(program), text.encode(), b'whet_kernel.cu', 0, None, None)
    rc = call('CompileProgram', program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    call('GetProgramLogSize', program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    call('GetProgramLog', program, log)
    log = log.value.decode(errors='replace')
    if rc or 'error:' in log:
        sys.exit('compile failed, code %d\n%s' % (rc, log))
    if log.strip():
        print(log, file=sys.stderr)
    call('Get%sSize' % get_code, program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    call('Get' + get_code, program, code)
    return code.raw


def clang(text, arch, options):
    with tempfile.TemporaryDirectory() as d:
        src, out = os.path.join(d, 'k.hip'), os.path.join(d, 'k.o')
        open(src, 'w').write(text)
        subprocess.run(['clang-22', '-x', 'hip', '--offload-arch=' + arch, '--offload-device-only', '--no-gpu-bundle-output', '-mcode-object-version=5',
                        '-nogpuinc', '-nogpulib', '-O3', '-std=c++17', '-o', out, src, *options], check=True)
        return open(out, 'rb').read()


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument('template')
    ap.add_argument('kernel')
    ap.add_argument('--source')
    ap.add_argument('--arch', required=True)
    ap.add_argument('--compiler', choices=['hiprtc', 'nvrtc', 'clang'], required=True)
    ap.add_argument('--library')
    ap.add_argument('--shape', default='')
    ap.add_argument('--tune', default='')
    ap.add_argument('--block', type=int, default=256)
    ap.add_argument('--shared', type=int, default=0)
    ap.add_argument('--option', action='append', default=[])
    ap.add_argument('-o', '--output')
    ap.add_argument('--listing')
    a = ap.parse_args()
    pairs = lambda s: dict(x.split('=') for x in s.split(',') if x)
    template = a.template.rstrip('/')
    source = a.source or next(os.path.join(template, a.kernel + e) for e in ('.cu', '.hip') if os.path.exists(os.path.join(template, a.kernel + e)))
    entry = '%s_%s' % (os.path.basename(template), a.kernel)
    platform = 'CUDA' if a.compiler == 'nvrtc' else 'HIP'
    text = prelude(platform, a.arch, entry, pairs(a.shape), pairs(a.tune), a.block, a.shared)
    text += '#line 1 "%s"\n' % os.path.basename(source) + expand(source, os.path.dirname(template), set())
    if a.compiler == 'hiprtc':
        os.environ['AMD_COMGR_CACHE'] = '0'
        code = rtc(a.library, 'hiprtc', text, ['--offload-arch=' + a.arch, '-O3', '-std=c++17', *a.option], 'Code')
    elif a.compiler == 'nvrtc':
        code = rtc(a.library, 'nvrtc', text, ['--gpu-architecture=' + a.arch, '-std=c++17', *a.option], 'CUBIN')
    else:
        code = clang(text, a.arch, a.option)
    output = a.output or os.path.join(tempfile.mkdtemp(), 'kernel.o')
    open(output, 'wb').write(code)
    if platform == 'CUDA':
        print('%d bytes' % len(code))
        return
    notes = subprocess.run(['llvm-readelf-22', '--notes', output], capture_output=True, text=True).stdout
    keys = ('vgpr_count', 'agpr_count', 'sgpr_count', 'vgpr_spill_count', 'sgpr_spill_count', 'private_segment_fixed_size', 'group_segment_fixed_size')
    print(' '.join('%s=%s' % (k, m[1]) for k in keys for m in [re.search(r'\.%s:\s*(\d+)' % k, notes)] if m))
    if a.listing:
        open(a.listing, 'w').write(subprocess.run(['llvm-objdump-22', '-d', output], capture_output=True, text=True).stdout)


if __name__ == '__main__':
    main()
