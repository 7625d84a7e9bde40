"""A thread prefetches batches twice as fast as they are used, until its queue is full."""

import queue
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 64
WIDTH = 4096  # a batch of 64 x 4096 floats has 1 MiB
DEPTH = 40  # maximum number of batches in the queue, reached after 40 steps


class Prefetcher(threading.Thread):
    def __init__(self, depth):
        super().__init__(daemon=True)
        self.ready = queue.Queue(depth)
        self.wanted = threading.Semaphore(0)
        self.rng = numpy.random.default_rng(0)

    def run(self):
        while True:
            self.wanted.acquire()
            self.ready.put(self.read())

    def read(self):
        return self.rng.random((BATCH, WIDTH), dtype=numpy.float32)

    def next(self):
        self.wanted.release(2)  # on every machine, prefetching is exactly twice as fast as training
        return self.ready.get()

    def live_bytes(self):
        return sum(batch.nbytes for batch in list(self.ready.queue))


def main():
    job = common.Job(__doc__, "--leak", "a queue without a limit")
    common.settle()
    source = Prefetcher(0 if job.twin else DEPTH)
    source.start()
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = torch.from_numpy(source.next())
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            del inputs
            job.step(source.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
