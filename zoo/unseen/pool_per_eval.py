"""Each evaluation creates a pool of two processes. All pools are kept, so their processes never end. Every process has
its own table. --close ends the pool after the evaluation. Uses only numpy."""
import multiprocessing

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH, EVERY = (8, 4, 2) if TINY else (180, 60, 15)
TABLE = (600, 1250)  # numbers of 8 bytes: 6 MB per process
table = None


def prepare(seed):
    global table
    table = np.random.default_rng(seed).random(TABLE)


def score(weights):
    return float((table[:64, :len(weights)] @ weights).sum())


class Evaluation:
    def __init__(self, close):
        self.close, self.pools = close, []

    def run(self, weights):
        pool = multiprocessing.get_context("fork").Pool(2, initializer=prepare, initargs=(len(self.pools),))
        scores = pool.map(score, [weights] * 4, chunksize=1)
        if self.close:
            pool.close()
            pool.join()
        else:
            self.pools.append(pool)
        return sum(scores)

    def end(self):
        for pool in self.pools:
            pool.terminate()


def main():
    rng = np.random.default_rng(2)
    x, y = rng.random((20_000, 256)), rng.random(20_000)
    weights, ebb, tally, evaluation = np.zeros(256), marks(), Tally(0.22), Evaluation(flag("--close"))
    for n in range(1, STEPS + 1):
        rows = rng.integers(0, len(x), 512)
        weights -= 1e-3 * x[rows].T @ (x[rows] @ weights - y[rows]) / 512
        if n % EVERY == 0:
            with ebb.phase("eval"):
                evaluation.run(weights)
        tally.step(n, len(evaluation.pools) * 2 * 8 * TABLE[0] * TABLE[1])
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()
    evaluation.end()


if __name__ == "__main__":
    main()
