"""Threads have their own scratch buffers, and thread pools that are no longer used are left
running."""

import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 32
FEATURES = 64
SCRATCH = 655360  # number of floats in the scratch buffer of each thread: 2.5 MiB
THREADS = 2
EVERY = 5  # number of steps that one pool serves

local = threading.local()
made = weakref.WeakSet()
running = []  # keeps alive the queue of each pool, as an idle worker thread would


class Scratch:
    """The scratch buffer of a thread, created when the thread first needs it."""

    def __init__(self):
        self.data = numpy.ones(SCRATCH, numpy.float32)
        made.add(self)


def augment(rows):
    """Scales the rows, using the buffer of the current thread."""
    if not hasattr(local, "scratch"):
        local.scratch = Scratch()
    view = local.scratch.data[: rows.size].reshape(rows.shape)
    numpy.multiply(rows, 1.01, out=view)
    return view.copy()


def new_pool(old, twin):
    """Starts a new pool; the old one gets no more work but stays alive."""
    if old and twin:
        old.shutdown()
    pool = ThreadPoolExecutor(THREADS)
    if not twin:
        running.append(pool)
    return pool


def live_bytes():
    return sum(scratch.data.nbytes for scratch in made)


def main():
    job = common.Job(__doc__, "--fixed", "shut the pool down")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs = numpy.random.rand(examples, FEATURES).astype(numpy.float32)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pool = None
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            if job.step_now % EVERY == 0:
                pool = new_pool(pool, job.twin)
            halves = numpy.array_split(inputs[batch.numpy()], THREADS)
            rows = torch.from_numpy(numpy.concatenate(list(pool.map(augment, halves))))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(rows), rows[:, :1]).backward()
            optimizer.step()
            job.step(live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
