"""Peers of the cache that are written in Python, on the same bytes: prints JSON.

    python3 bench/cache/python_peers.py DIRECTORY

DIRECTORY holds object files file0, file1, ... as cache_bench writes them. A peer that is not
installed is named under "absent". What is timed is a get of the bytes by a process that has the
cache open, after one round that warms the page cache.
"""

import hashlib
import json
import os
import sys
import time


def samples(get, objects):
    for key, value in objects.items():
        if bytes(get(key)) != value:
            raise SystemExit("a peer returned other bytes for " + key)
    times = []
    for _ in range(3):
        for key in objects:
            start = time.perf_counter_ns()
            get(key)
            times.append(time.perf_counter_ns() - start)
    return times


def diskcache_peer(directory, objects):
    import diskcache

    cache = diskcache.Cache(os.path.join(directory, "diskcache"))
    for key, value in objects.items():
        cache[key] = value
    name = "Python diskcache %s get" % diskcache.__version__
    return name, samples(cache.__getitem__, objects)


def triton_peer(directory, objects):
    os.environ["TRITON_CACHE_DIR"] = os.path.join(directory, "triton")
    import triton
    from triton.runtime.cache import get_cache_manager

    for key, value in objects.items():
        get_cache_manager(hashlib.sha256(key.encode()).hexdigest()).put(value, "kernel.cubin", binary=True)

    def get(key):
        manager = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
        with open(manager.get_file("kernel.cubin"), "rb") as file:
            return file.read()

    return "Triton %s cache manager, file read" % triton.__version__, samples(get, objects)


def cupy_peer(directory, objects):
    """As CuPy's compiler module reads its cache: a file with a digest before the bytes. (CuPy itself
    cannot be imported for this without a GPU library.)"""
    folder = os.path.join(directory, "cupy")
    os.makedirs(folder, exist_ok=True)
    for key, value in objects.items():
        with open(os.path.join(folder, key), "wb") as file:
            file.write(hashlib.sha1(value, usedforsecurity=False).hexdigest().encode("ascii"))
            file.write(value)

    def get(key):
        with open(os.path.join(folder, key), "rb") as file:
            data = file.read()
        digest, cubin = data[:40], data[40:]
        if digest != hashlib.sha1(cubin, usedforsecurity=False).hexdigest().encode("ascii"):
            raise SystemExit("CuPy's way: a digest differs")
        return cubin

    return "CuPy's way: Python file read, SHA-1 checked", samples(get, objects)


def main():
    directory = sys.argv[1]
    objects = {}
    while os.path.exists(os.path.join(directory, "file%d" % len(objects))):
        name = "file%d" % len(objects)
        with open(os.path.join(directory, name), "rb") as file:
            objects[name] = file.read()
    peers, absent = [], []
    for peer in (diskcache_peer, triton_peer, cupy_peer):
        try:
            name, times = peer(directory, objects)
            peers.append({"question": name, "samples_ns": times})
        except ImportError as error:
            absent.append("%s: %s" % (peer.__name__, error))
    print(json.dumps({"python": sys.version.split()[0], "peers": peers, "absent": absent}))


if __name__ == "__main__":
    main()
