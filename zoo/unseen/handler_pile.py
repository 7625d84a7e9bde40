"""Each evaluation adds a handler to the logger, in order to include the log in the evaluation's report. The handler is
never removed and stores all later lines of the log. --remove removes the handler. Uses only numpy."""
import io
import logging

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH, EVERY = (8, 4, 2) if TINY else (200, 50, 20)
ROWS, FEATURES, CLASSES, LINES = 60_000, 256, 20, 60
log = logging.getLogger("training")


class Reporter:
    def __init__(self, remove):
        self.remove, self.buffers, self.handler = remove, [], None
        self.attach()

    def attach(self):
        if self.handler and self.remove:
            log.removeHandler(self.handler)
            self.handler.close()
            self.buffers.clear()
        self.buffers.append(io.BytesIO())
        stream = io.TextIOWrapper(self.buffers[-1], encoding="utf-8", write_through=True)
        self.handler = logging.StreamHandler(stream)
        self.handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        log.addHandler(self.handler)

    def report(self, weights):
        text = self.buffers[-1].getvalue()
        self.attach()
        return len(text), float(np.abs(weights).mean())

    def size(self):
        return sum(buffer.getbuffer().nbytes for buffer in self.buffers)


def log_weights(n, weights, gradient):
    for i in range(LINES):
        numbers = " ".join(f"{value:.5f}" for value in [*weights[i], *gradient[i]])
        log.info("step %d row %d weights and gradients %s", n, i, numbers)


def main():
    log.setLevel(logging.INFO)
    log.propagate = False
    rng = np.random.default_rng(13)
    data, goal = rng.random((ROWS, FEATURES), dtype=np.float32), rng.integers(0, CLASSES, ROWS)
    weights, reporter = np.zeros((FEATURES, CLASSES), np.float32), Reporter(flag("--remove"))
    ebb, tally = marks(), Tally(0.16)
    for n in range(1, STEPS + 1):
        i = rng.integers(0, ROWS, 512)
        scores = data[i] @ weights
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(512), goal[i]] -= 1
        gradient = data[i].T @ scores / 512
        weights -= 0.05 * gradient
        log_weights(n, weights, gradient)
        tally.step(n, reporter.size())
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
        if n % EVERY == 0:
            reporter.report(weights)
            ebb.mark("eval", step=n)
    tally.end()


if __name__ == "__main__":
    main()
