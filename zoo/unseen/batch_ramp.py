"""A numpy program whose batch grows from 256 to 4096 rows during two of six epochs and then stays constant. From the
fourth epoch on, the errors of each step are sent to a stub of an experiment tracker. With --mock the stub is a
MagicMock, which records all calls. (cpython #106823)"""
from unittest import mock

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (4, 4) if TINY else (6, 34)
ROWS, FEATURES, HIDDEN, CLASSES = (6000 if TINY else 90_000), 400, 192, 10
SMALL, LARGE = (256, 512) if TINY else (256, 4096)


class NoTracker:
    def log(self, values, step):
        pass


def rows_of(n):
    return int(SMALL + (LARGE - SMALL) * min(1, n / (2 * STEPS)))


def train(net, x, y):
    """Makes one step; returns the errors of all rows."""
    inner = np.maximum(x @ net[0], 0)
    scores = inner @ net[1]
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    scores[np.arange(len(y)), y] -= 1
    back = (scores @ net[1].T) * (inner > 0)
    net[1] -= 0.1 * inner.T @ scores / len(y)
    net[0] -= 0.1 * x.T @ back / len(y)
    return scores


def main():
    rng = np.random.default_rng(9)
    data, goal = rng.random((ROWS, FEATURES), dtype=np.float32), rng.integers(0, CLASSES, ROWS)
    net = [rng.standard_normal(shape).astype(np.float32) / 20 for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))]
    tracker = mock.MagicMock() if flag("--mock") else NoTracker()
    ebb, tally, n, logged = marks(), Tally(0.215), 0, 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            i = rng.integers(0, ROWS, rows_of(n))
            errors = train(net, data[i], goal[i])
            n += 1
            if epoch >= 3:
                tracker.log({"errors": errors}, step=n)
                logged += errors.nbytes if flag("--mock") else 0
            tally.step(n, logged)
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
