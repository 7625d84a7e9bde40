"""Word vectors are updated through a log, which is merged into the table of vectors every 35 steps, so memory is a long
sawtooth. With --undo each merge keeps the vectors that it replaced. There are no epochs, and torch is not used."""
import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, EVERY = (8, 3) if TINY else (210, 35)
WORDS, WIDTH, PAIRS = (500, 32, 50) if TINY else (40_000, 128, 1300)


class Store:
    """A table of vectors, and a log of newer values."""

    def __init__(self, undo):
        self.table = np.random.default_rng(18).standard_normal((WORDS, WIDTH)).astype(np.float32) / 10
        self.log, self.undo, self.replaced = [], undo, []

    def read(self, words):
        return self.table[words]

    def write(self, words, vectors):
        self.log.append((words, vectors))

    def merge(self):
        if self.undo:
            words = np.unique(np.concatenate([words for words, _ in self.log]))
            self.replaced.append((words, self.table[words]))
        for words, vectors in self.log:
            self.table[words] = vectors
        self.log.clear()

    def nbytes(self):
        return sum(words.nbytes + vectors.nbytes for words, vectors in self.log + self.replaced)


def main():
    rng, store = np.random.default_rng(19), Store(flag("--undo"))
    ebb, tally = marks(), Tally(0.2)
    for n in range(1, STEPS + 1):
        words = (WORDS * rng.random(PAIRS) ** 2).astype(np.int64)
        near = np.clip(words + rng.integers(-20, 20, PAIRS), 0, WORDS - 1)
        here, there = store.read(words), store.read(near)
        score = 1 / (1 + np.exp(-(here * there).sum(1, keepdims=True)))
        store.write(words, here + 0.05 * (1 - score) * there)
        if n % EVERY == 0:
            store.merge()
        tally.step(n, store.nbytes())
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
