"""In the first third of the run, 190 MB of data are read in pieces; afterwards memory is constant. With --spikes the
data is read quickly, and every 20 steps a matrix of 250 MB exists for most of a second. Neither variant leaks. Uses
only numpy."""
import time

from kit import Ledger, Pace, options
from marks import teller

PARTS, EPOCHS, STEPS = 48, 4, 40

opts = options("--spikes")
import numpy as np


def read(parts, seconds):
    shards = []
    for i in range(parts):
        shards.append(np.random.default_rng(i).random((500, 1000)))
        time.sleep(0 if opts.tiny else seconds)
    return shards


def kernel_matrix(batch):
    """Returns the mean of the matrix of all pairs, which is too large to be kept."""
    side = 5600
    full = np.empty((side, side))
    for row in range(0, side, 700):
        full[row:row + 700] = batch.mean()
        time.sleep(0 if opts.tiny else 0.09)
    return float(full.mean())


def main():
    epochs, steps = (1, 20) if opts.tiny else (EPOCHS, STEPS)
    ebb = teller(opts.no_marks)
    rng = np.random.default_rng(1)
    shards = read(2 if opts.tiny else PARTS, 0.02 if opts.twin else 0.24)
    weights, scale = np.zeros(1000), 0.0
    pace, ledger, step = Pace(0.15, opts.tiny), Ledger(), 0
    ledger.note(0, sum(s.nbytes for s in shards))
    for _ in range(epochs):
        for _ in range(steps):
            batch = shards[rng.integers(len(shards))][:64]
            weights += 1e-3 * (batch.T @ (1.0 - batch @ weights)) / len(batch)
            step += 1
            if opts.twin and step % 20 == 0:
                scale = kernel_matrix(batch)
            pace.tick()
            ebb.step(step)
            if step % 8 == 0:
                ledger.note(step, sum(s.nbytes for s in shards) + weights.nbytes)
    ledger.close(epochs, steps, scale=scale)


main()
