"""Each batch is staged in an anonymous mapping made by C's mmap; every second batch takes an error path that never
unmaps the mapping. --unmap unmaps it on both paths. Uses only numpy. (util-linux #3857, darkroom #2)"""
import ctypes
import mmap

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, BYTES = (2, 4, 1 << 16) if TINY else (4, 60, 600_000)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def stage(rng, unmap, n):
    """Returns the mean of a staged batch, and the number of bytes that stay mapped."""
    at = libc.mmap(None, BYTES, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    batch = np.frombuffer((ctypes.c_char * BYTES).from_address(at), np.float32)
    batch[:] = rng.random(BYTES // 4, dtype=np.float32)
    mean, is_broken = float(batch.mean()), n % 2 == 1
    del batch
    if unmap or not is_broken:
        libc.munmap(at, BYTES)
        return mean, 0
    return mean, BYTES


def main():
    ebb, tally, rng, held, n = marks(), Tally(0.16), np.random.default_rng(1), 0, 0
    weights = rng.random((800, 800), dtype=np.float32)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            mean, kept = stage(rng, flag("--unmap"), n)
            weights += np.float32(1e-6 * mean) * (weights @ weights).clip(-1, 1)
            held, n = held + kept, n + 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, held)
    tally.end()


if __name__ == "__main__":
    main()
