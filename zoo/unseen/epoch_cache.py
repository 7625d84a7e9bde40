"""Features of an epoch are cached until its end and then freed, so memory is a sawtooth. With --pin-hard one feature in
eight is never freed, so the baseline of the sawtooth grows. Does not use torch."""
import ctypes
import gc

from kit import Ledger, Pace, options
from marks import teller

EPOCHS, STEPS, FEATURES = 8, 30, 131_072

opts = options("--pin-hard")
import numpy as np

libc = ctypes.CDLL(None)


class FeatureCache:
    def __init__(self, pin):
        self.pin = pin
        self.rows, self.hard = {}, []

    def compute(self, index):
        rng = np.random.default_rng(index)
        row = rng.random(FEATURES)
        self.rows[index] = row
        if self.pin and index % 8 == 0:
            self.hard.append(row)
        return row

    def end_epoch(self):
        self.rows.clear()
        gc.collect()
        libc.malloc_trim(0)

    def live(self):
        held = {id(a): a.nbytes for a in [*self.rows.values(), *self.hard]}
        return sum(held.values())


def main():
    epochs, steps = (2, 4) if opts.tiny else (EPOCHS, STEPS)
    ebb = teller(opts.no_marks)
    cache, weights = FeatureCache(opts.twin), np.zeros(1024)
    pace, ledger, step = Pace(0.14, opts.tiny), Ledger(), 0
    for epoch in range(epochs):
        for i in range(steps):
            for j in range(4):
                row = cache.compute(i * 4 + j)
                weights += 1e-3 * (row[:1024] - weights)
            step += 1
            pace.tick()
            ebb.step(step, steps_per_epoch=steps)
            if step == 1 or step % 5 == 0:
                ledger.note(step, cache.live())
        cache.end_epoch()
        ebb.mark("epoch", step=step, epoch=epoch + 1)
    ledger.close(epochs, steps, floor=cache.live())


main()
