"""For each epoch, a pool of processes creates a varying amount of data and exits. The data of all epochs is kept; with
--replace only that of the last epoch."""
import multiprocessing

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, PER_EPOCH = (2, 4) if TINY else (7, 26)
CHUNKS = [30, 16, 28, 18, 26, 20, 24]  # each of 1 MB
ROW = 64


def chunk(seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((1_000_000 // ROW // 4, ROW)) * rng.uniform(0.5, 2)).astype(np.float32)


def make_version(epoch):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return list(pool.imap(chunk, range(100 * epoch, 100 * epoch + CHUNKS[epoch])))


def main():
    weights, ebb, tally, versions, n = np.zeros(ROW), marks(), Tally(0.18), {}, 0
    for epoch in range(EPOCHS):
        if flag("--replace"):
            data = None
            versions.clear()
        versions[epoch] = data = make_version(epoch)
        for i in range(PER_EPOCH):
            rows = data[i % len(data)]
            weights -= 1e-4 * (rows @ weights - rows[:, 0]) @ rows / len(rows)
            n += 1
            tally.step(n, sum(rows.nbytes for version in versions.values() for rows in version))
            ebb.step(n, epoch=n / PER_EPOCH, steps_per_epoch=PER_EPOCH)
        ebb.mark("epoch", step=n)
    tally.end()


if __name__ == "__main__":
    main()
