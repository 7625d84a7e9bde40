"""A pool of clips of widely varying length; each step replaces a tenth of them. Live memory is bounded, but resident
memory grows slowly by fragmentation. --index keeps an index entry for every replaced clip. Does not use torch. (Pillow
#2019, TileDB #2443)"""
import sys

import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS = (4, 2) if TINY else (50, 4)
STEPS = PER_EPOCH * EPOCHS
CLIPS, REPLACED = (60, 6) if TINY else (600, 60)
LEVELS = [f"level_{i}" for i in range(24)]


class Pool:
    def __init__(self, index):
        self.rng, self.index, self.origins, self.held = np.random.default_rng(15), index, {}, 0
        self.clips = [self.clip() for _ in range(CLIPS)]

    def clip(self):
        return self.rng.standard_normal(int(self.rng.integers(2000, 40_000)), dtype=np.float32)

    def replace(self, n):
        for at in self.rng.integers(0, CLIPS, REPLACED).tolist():
            old = self.clips[at]
            if self.index:
                origin = dict(zip(LEVELS, old[:len(LEVELS)].tolist()))
                self.origins[n, at, len(self.origins)] = origin
                self.held += sys.getsizeof(origin) + len(LEVELS) * 24 + 64 + 28
            self.clips[at] = self.clip()

    def batch(self):
        return [self.clips[at] for at in self.rng.integers(0, CLIPS, 40)]


def spectrum(clip):
    size = 1 << (len(clip).bit_length() - 1)
    return np.abs(np.fft.rfft(clip[:size]))[:500]


def main():
    ebb, tally, pool = marks(), Tally(0), Pool(flag("--index"))
    weights = np.zeros(500)
    for n in range(1, STEPS + 1):
        for _ in range(17):
            for clip in pool.batch():
                bands = spectrum(clip) / 200
                weights += 0.01 * (np.tanh(clip[:50].sum()) - weights @ bands) * bands
        pool.replace(n)
        tally.step(n, sum(clip.nbytes for clip in pool.clips) + pool.held)
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
