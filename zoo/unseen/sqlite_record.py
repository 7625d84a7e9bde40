"""An in-memory database records an experiment: histograms of the gradients after each step or, with --evaluations, the
scores of each evaluation. Both variants leak. Does not use torch."""
import kit
import numpy as np
from marks import teller
opt = kit.options("--evaluations")
try:
    import sqlite3
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, EVERY = (2, 8, 4) if opt.tiny else (4, 60, 15)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.175, opt.tiny), teller(opt.no_marks, raw=True)


class Record:
    def __init__(self):
        self.base, self.bytes = sqlite3.connect(":memory:"), 0
        self.base.execute("create table record (step integer, name text, value blob)")

    def write(self, step, name, array):
        self.bytes += array.nbytes
        self.base.execute("insert into record values (?, ?, ?)", (step, name, array.tobytes()))
        self.base.commit()


class Net:
    """A network of two layers, written by hand."""

    def __init__(self, rng):
        self.a, self.b = rng.normal(0, 0.05, (600, 300)), rng.normal(0, 0.05, (300, 100))

    def forward(self, x):
        self.x, self.h = x, np.maximum(x @ self.a, 0)
        logits = self.h @ self.b
        p = np.exp(logits - logits.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def train(self, x, y, rate=0.01):
        p = self.forward(x)
        p[np.arange(len(y)), y] -= 1
        grad_b = self.h.T @ p / len(y)
        grad_a = self.x.T @ ((p @ self.b.T) * (self.h > 0)) / len(y)
        self.a -= rate * grad_a
        self.b -= rate * grad_b
        return grad_a


def histograms(grad):
    """A histogram has 128 bins for each of 600 inputs: 614 kB."""
    bins = np.zeros((600, 128))
    where = np.clip((grad / (abs(grad).max() + 1e-12) + 1) * 63.5, 0, 127).astype(int)
    for row, places in zip(bins, where):
        np.add.at(row, places, 1.0)
    return bins


def evaluate(net, x):
    """An evaluation has 1000 x 100 scores at eleven temperatures: 8.8 MB."""
    return np.stack([net.forward(x * heat) for heat in np.linspace(0.5, 2, 11)])


rng = np.random.default_rng(9)
x, y = rng.normal(size=(STEPS * 48, 600)), rng.integers(0, 100, STEPS * 48)
held_out = rng.normal(size=(1000, 600))
net, record, n = Net(rng), Record(), 0
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    order = rng.permutation(len(y))
    for i in range(STEPS):
        rows = order[i * 48:(i + 1) * 48]
        grad = net.train(x[rows], y[rows])
        if not opt.twin:
            record.write(n, "gradients", histograms(grad))
        n += 1
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4))
        if n % EVERY == 0:
            with tell.phase("eval"):
                scores = evaluate(net, held_out)
                if opt.twin:
                    record.write(n, "scores", scores)
                scores = None
            tell.mark("eval", step=n)
        if n == 1 or n % 10 == 0:
            ledger.note(n, record.bytes)
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
