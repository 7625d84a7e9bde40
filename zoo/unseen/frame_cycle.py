"""Training with scikit-learn and without torch. Automatic garbage collection is off, but gc.collect is called every ten
steps. A batch with missing numbers raises an error, which a local variable keeps for a retry: the error, its traceback
and the frame with the batch form a cycle. With --no-collect, gc.collect is never called. (flask #5709, billiard
#311)"""
import gc
import weakref

import numpy as np
from sklearn.linear_model import SGDClassifier

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (2, 12) if TINY else (5, 41)
ROWS, FEATURES, BATCH, EVERY = (2000 if TINY else 160_000), 250, 400, 10
alive = weakref.WeakSet()


class Batch:
    def __init__(self, rows):
        self.rows = rows
        alive.add(self)


def fit(model, data, goal, i):
    batch, error = Batch(data[i]), None
    for _ in range(2):
        try:
            return model.partial_fit(batch.rows, goal[i], classes=np.arange(5))
        except ValueError as this:
            error = this
            np.nan_to_num(batch.rows, copy=False)
    raise error


def main():
    rng, collect = np.random.default_rng(15), not flag("--no-collect")
    data, goal = rng.random((ROWS, FEATURES), dtype=np.float32), rng.integers(0, 5, ROWS)
    data[rng.integers(0, ROWS, ROWS // 20), rng.integers(0, FEATURES, ROWS // 20)] = np.nan
    model = SGDClassifier(random_state=1)
    gc.disable()
    ebb, tally, n = marks(), Tally(0.205), 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            fit(model, data, goal, rng.integers(0, ROWS, BATCH))
            n += 1
            if collect and n % EVERY == 0:
                gc.collect()
            tally.step(n, len(alive) * BATCH * FEATURES * 4)
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
