"""The rows of each step are appended to a scipy sparse matrix of all earlier rows, which creates a new matrix each
time. There are also temporary dense arrays. --window keeps the last 1,200 rows. There are no epochs, and torch is not
used."""
import numpy as np
from scipy import sparse

from tally import TINY, Tally, flag, marks

STEPS, ROWS, COLUMNS = (6, 10, 100) if TINY else (220, 60, 4000)


def add_rows(seen, rows, window):
    seen = sparse.vstack([seen, rows], format="csr")
    return seen[-1200:] if window else seen


def main():
    ebb, tally, source, window = marks(), Tally(0.18), np.random.default_rng(4), flag("--window")
    seen = sparse.csr_matrix((0, COLUMNS))
    for n in range(1, STEPS + 1):
        rows = sparse.random(ROWS, COLUMNS, 0.1, format="csr", random_state=n)
        dense = source.random((int(source.integers(200, 900)), 1000))
        scores = np.tanh(dense @ source.random((1000, 4)))
        seen = add_rows(seen, rows * float(1 + scores.mean()), window)
        ebb.step(n)
        tally.step(n, seen.data.nbytes + seen.indices.nbytes)
    tally.end()


if __name__ == "__main__":
    main()
