"""Ridge regression on random features. From the third epoch on, the eight largest residuals of each step are kept as a
slice of the sorted array, and the slice keeps the whole array alive. --copy keeps a copy of the slice instead. Does not
use torch. (numpy #10273, pandas #60640)"""
import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS, FROM = (4, 3, 2) if TINY else (40, 5, 2)
STEPS = PER_EPOCH * EPOCHS
ROWS, WIDTH, TOP = 65_536, 64, 8  # size of the sorted residuals: 0.52 MB


def features(rng, projection):
    x = rng.standard_normal((ROWS, 24), dtype=np.float32)
    return np.cos(x @ projection), x.sum(1)


def sorted_residuals(hidden, y, weights):
    return np.sort(np.abs(hidden @ weights - y).astype(np.float64))[::-1]


class Hardest:
    def __init__(self, copy):
        self.copy, self.noted = copy, []

    def note(self, residuals):
        top = residuals[:TOP]
        self.noted.append(top.copy() if self.copy else top)

    def held(self):
        return sum(top.nbytes if top.base is None else ROWS * 8 for top in self.noted)


def main():
    rng, ebb, tally, hardest = np.random.default_rng(4), marks(), Tally(0), Hardest(flag("--copy"))
    projection = rng.standard_normal((24, WIDTH), dtype=np.float32)
    weights = np.zeros(WIDTH, np.float32)
    n = 0
    for epoch in range(EPOCHS):
        for _ in range(PER_EPOCH):
            hidden, y = features(rng, projection)
            for _ in range(58):
                weights -= (0.2 / ROWS) * (hidden.T @ (hidden @ weights - y))
            residuals = sorted_residuals(hidden, y, weights)
            if epoch >= FROM:
                hardest.note(residuals)
            del residuals
            n += 1
            tally.step(n, hardest.held())
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
