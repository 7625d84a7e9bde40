"""Evolution strategies. Each step adds the scores of its population to a list in the server process of
multiprocessing.Manager. --rotate deletes the older half of the list when it has 40 rows. Does not use torch. (cpython
#103136, CenterPoint #274)"""
import multiprocessing

import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS = (4, 2) if TINY else (64, 3)
STEPS = PER_EPOCH * EPOCHS
ROW, POPULATION, WIDTH, CASES = 25_000, 96, 400, 1500
MOST = 40


class Board:
    def __init__(self, manager, rotate):
        self.rows, self.rotate = manager.list(), rotate

    def post(self, n, scores):
        self.rows.append({"step": n, "scores": scores})
        if self.rotate and len(self.rows) >= MOST:
            del self.rows[:MOST // 2]


def evaluate(weights, cases, targets):
    hidden = np.tanh(cases @ weights.T)
    errors = (hidden - targets[:, None]) ** 2
    return errors.mean(0), errors.ravel()[:ROW].copy()


def main():
    rng, ebb, tally = np.random.default_rng(6), marks(), Tally(0)
    cases = rng.standard_normal((CASES, WIDTH))
    targets = np.sign(cases[:, 0] + cases[:, 1])
    centre = np.zeros(WIDTH)
    with multiprocessing.Manager() as manager:
        board = Board(manager, flag("--rotate"))
        for n in range(1, STEPS + 1):
            for _ in range(20):
                noise = rng.standard_normal((POPULATION, WIDTH))
                losses, scores = evaluate(centre + 0.05 * noise, cases, targets)
                centre -= 0.1 * ((losses - losses.mean()) / (losses.std() + 1e-9)) @ noise / POPULATION
            board.post(n, scores)
            tally.step(n, len(board.rows) * ROW * 8)
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
