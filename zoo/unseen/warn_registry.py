"""Clusters records by k-means and warns about bad records. Each warning contains the record's values, and the
interpreter remembers every warning text. With --constant all warnings have the same text. Does not use torch. (cpython
#97557, POSYDON #364)"""
import warnings

import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS = (4, 2) if TINY else (60, 4)
STEPS = PER_EPOCH * EPOCHS
RECORDS, WIDTH, CENTRES, BATCH, BAD = (4000 if TINY else 200_000), 128, 384, 4096, 40
TEXT = 2000


class Records:
    def __init__(self, constant):
        self.constant, self.warned = constant, 0
        rng = np.random.default_rng(3)
        self.values = np.empty((RECORDS, WIDTH))
        for at in range(0, RECORDS, 2000):
            self.values[at:at + 2000] = rng.standard_normal((2000, WIDTH))
        self.rng = rng

    def check(self, row):
        if self.constant:
            warnings.warn("record out of range")
        else:
            values = " ".join(f"{value:.17f}" for value in self.values[row])
            warnings.warn(f"record {row} out of range at check {self.warned}: {values}"[:TEXT].ljust(TEXT))
        self.warned += 1

    def batch(self):
        rows = self.rng.integers(0, RECORDS, BATCH)
        for row in rows[:BAD]:
            self.check(int(row))
        return self.values[rows]


def main():
    warnings.resetwarnings()
    warnings.simplefilter("default")
    warnings.showwarning = lambda *args, **kwargs: None
    records, ebb, tally = Records(flag("--constant")), marks(), Tally(0)
    centres = records.values[:CENTRES].copy()
    for n in range(1, STEPS + 1):
        x = records.batch()
        for _ in range(4):
            nearest = (x @ centres.T - 0.5 * (centres * centres).sum(1)).argmax(1)
            for centre in np.unique(nearest):
                centres[centre] += 0.05 * (x[nearest == centre].mean(0) - centres[centre])
        tally.step(n, 0 if records.constant else records.warned * (TEXT + 49 + 64))
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
