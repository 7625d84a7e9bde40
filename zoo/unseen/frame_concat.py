"""Softmax regression without torch. The scores of each evaluation are appended to one structured array, like rows to
a data frame; --window keeps only those of the last two evaluations."""
import numpy as np
import kit
from marks import teller
opt = kit.options("--window")
EPOCHS, STEPS, EVERY = (2, 6, 3) if opt.tiny else (4, 45, 15)
ROWS, CLASSES, DIM = 90_000, 24, 64
ROW = np.dtype([("epoch", "i4"), ("id", "i8"), ("label", "i4"), ("score", "f4", (CLASSES,))])
ledger, pace, tell = kit.Ledger(), kit.Pace(0.18, opt.tiny), teller(opt.no_marks, raw=True)
rng = np.random.default_rng(9)
train_x = rng.random((800_000, DIM), dtype=np.float32)  # 205 MB
train_y = rng.integers(0, CLASSES, len(train_x))
test_x, test_y = train_x[:ROWS], train_y[:ROWS].astype("i4")
w = np.zeros((DIM, CLASSES), dtype=np.float32)


def softmax(z):
    z = np.exp(z - z.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


class Frame:
    def __init__(self):
        self.rows = np.empty(0, ROW)

    def append(self, epoch, scores):
        new = np.empty(len(scores), ROW)
        new["epoch"], new["id"], new["label"], new["score"] = \
            epoch, np.arange(len(scores)), test_y, scores
        old = self.rows[-ROWS:] if opt.twin else self.rows
        self.rows = np.concatenate([old, new])


frame, n = Frame(), 0
per = len(train_x) // STEPS
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    for i in range(STEPS):
        part = slice(i * per, i * per + 2000)
        p = softmax(train_x[part] @ w)
        p[np.arange(2000), train_y[part]] -= 1
        w -= 0.1 * train_x[part].T @ p / 2000
        n += 1
        pace.tick()
        tell.step(n)
        if n % EVERY == 0:
            frame.append(epoch, softmax(test_x @ w))
            tell.mark("eval", step=n)
        if n == 1 or n % STEPS == 0:
            ledger.note(n, frame.rows.nbytes)
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
