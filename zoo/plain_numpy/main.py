"""Gradient descent in plain numpy. The weights of every step are kept, to average them later."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy

FEATURES = 131072  # number of weights (doubles): 1 MiB in total
BATCH = 8


class Averager:

    def __init__(self, twin):
        self.history = []
        self.twin = twin

    def add(self, weights):
        if self.twin:
            self.history = self.history[:0]
        self.history.append(weights.copy())

    def live_bytes(self):
        return sum(weights.nbytes for weights in self.history)


def main():
    job = common.Job(__doc__, "--fixed", "forget the weights of the step before")
    rng = numpy.random.default_rng(0)
    weights = numpy.zeros(FEATURES)
    averager = Averager(job.twin)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs, labels = rng.standard_normal((BATCH, FEATURES)), rng.integers(0, 2, BATCH)
            errors = 1 / (1 + numpy.exp(-inputs @ weights)) - labels
            weights -= 1e-3 * errors @ inputs / BATCH
            averager.add(weights)
            job.step(averager.live_bytes())
        numpy.save(os.path.join(job.folder, "weights.npy"), weights)
        job.saved()
    job.end()


if __name__ == "__main__":
    main()
