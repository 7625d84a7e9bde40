"""A resampler allocates blocks with C's malloc, and does not free the blocks of clips that are too loud; --free frees
them. Uses only numpy."""
import ctypes

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH = (8, 4) if TINY else (180, 45)
BASE = 30_000_000  # number of features (floats), allocated at the start
LENGTHS = [7_200, 12_800, 9_600, 17_600, 11_200, 15_200]
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]


class Resampler:
    def __init__(self, free_skipped):
        self.free_skipped, self.lost = free_skipped, 0

    def resample(self, wave, length):
        block = libc.malloc(4 * length)
        view = np.ctypeslib.as_array(ctypes.cast(block, ctypes.POINTER(ctypes.c_float)), (length,))
        view[:] = np.interp(np.linspace(0, len(wave) - 1, length), np.arange(len(wave)), wave)
        if np.abs(view).max() > 4:
            if self.free_skipped:
                libc.free(block)
            else:
                self.lost += 4 * length
            return None
        out = view.copy()
        libc.free(block)
        return out


def spectrum(clip, rng):
    """Allocates a temporary array of 1 to 12 MB, depending on the length of the clip."""
    frames = int(rng.integers(150, 1800))
    windows = np.lib.stride_tricks.sliding_window_view(clip, 800)
    return np.abs(np.fft.rfft(windows[np.arange(frames) % len(windows)], axis=1)).mean(0)[:64]


def main():
    rng = np.random.default_rng(3)
    features = rng.random(BASE, dtype=np.float32)
    weights, ebb, tally = np.zeros(64), marks(), Tally(0.18)
    resampler = Resampler(flag("--free"))
    for n in range(1, STEPS + 1):
        for i in range(6):
            wave = rng.standard_normal(8_000).clip(-3, 3)
            if i == n % 6 or i == (n * 5 + 3) % 6:
                wave[100] = 9
            clip = resampler.resample(wave, LENGTHS[(n + i) % 6])
            if clip is not None and i % 2:
                found = spectrum(clip, rng)
                target = features[(n * 64) % (BASE - 64):][:64]
                weights += 1e-3 * (target - weights * found) * found
        tally.step(n, 4 * BASE + resampler.lost)
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
