"""itertools.tee splits a stream of documents: one branch is for training, the other for statistics that are computed at
the very end. tee keeps all documents that one branch has read but the other has not. --per-epoch computes the
statistics at the end of each epoch. Uses only Python and numpy."""
import itertools

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, BATCH = (2, 4, 3) if TINY else (4, 46, 6)
WORDS = 1500
held = {"documents": 0}


def documents(count):
    rng = np.random.default_rng(10)
    for _ in range(count):
        yield [float(x) for x in rng.random(WORDS)]  # 48 kB: floats of 24 bytes, with their slots


def batches(stream):
    while batch := list(itertools.islice(stream, BATCH)):
        held["documents"] += len(batch)
        yield batch


def statistics(stream, count):
    return sum(max(document) for document in itertools.islice(stream, count)) / count


def train(weights, batch):
    x = np.array(batch)
    weights += 1e-4 * x.T @ (x[:, 0] - x @ weights)
    return weights


def main():
    ebb, tally, weights, n = marks(), Tally(0.21), np.zeros(WORDS), 0
    ahead, behind = itertools.tee(documents(EPOCHS * STEPS * BATCH))
    for batch in batches(ahead):
        weights = train(weights, batch)
        n += 1
        if flag("--per-epoch") and n % STEPS == 0:
            print("statistics", statistics(behind, STEPS * BATCH))
            held["documents"] = 0
        del batch
        tally.step(n, held["documents"] * WORDS * 32)
        ebb.step(n, steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
    if not flag("--per-epoch"):
        print("statistics", statistics(behind, EPOCHS * STEPS * BATCH))
    tally.end()


if __name__ == "__main__":
    main()
