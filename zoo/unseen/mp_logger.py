"""Images are sent to a writer process through multiprocessing.Queue. The writer is slower than training, and images
that do not fit into the pipe stay in the training process. With --drop the queue contains at most eight images, and
further images are dropped."""
import multiprocessing
import queue
import time

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH = (8, 4) if TINY else (186, 62)
SIDE, WRITING = 256, 0.01 if TINY else 0.63  # seconds to write one image of 0.26 MB
ROOM = 8


def write(pictures):
    total = 0.0
    while (picture := pictures.get()) is not None:
        total += float(picture.mean())
        time.sleep(WRITING)


class PictureLog:
    def __init__(self, drop):
        context = multiprocessing.get_context("fork")
        self.drop, self.pictures = drop, context.Queue(ROOM if drop else 0)
        self.writer = context.Process(target=write, args=(self.pictures,), daemon=True)
        self.writer.start()

    def add(self, weights):
        picture = np.outer(weights, weights[::-1]).astype(np.float32)
        try:
            self.pictures.put_nowait(picture)
        except queue.Full:
            pass

    def held(self):
        return self.pictures.qsize() * SIDE * SIDE * 4

    def end(self):
        self.pictures.cancel_join_thread()
        self.writer.terminate()


def main():
    rng = np.random.default_rng(16)
    x, y = rng.random((8_000, SIDE)), rng.random(8_000)
    weights, ebb, tally, log = np.zeros(SIDE), marks(), Tally(0.21), PictureLog(flag("--drop"))
    for n in range(1, STEPS + 1):
        rows = rng.integers(0, len(x), 256)
        weights -= 1e-3 * x[rows].T @ (x[rows] @ weights - y[rows]) / 256
        log.add(weights)
        tally.step(n, log.held())
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()
    log.end()


if __name__ == "__main__":
    main()
