"""Broken examples are skipped, but their exceptions are kept for a report, with all objects that they refer
to."""

import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 4
SIDE = 512  # an image of 512 x 512 floats has 1 MiB

refs = []  # weak references to all decoded images that are still alive


class Picture(numpy.ndarray):
    """An image. Like a real decoder, decode() uses its own type, not a plain array."""


class Pictures:
    def __init__(self, twin):
        self.errors = []
        self.rng = numpy.random.default_rng(0)
        self.twin = twin

    def decode(self, broken):
        pixels = self.rng.random((SIDE, SIDE), dtype=numpy.float32).view(Picture)
        refs.append(weakref.ref(pixels))
        if broken:
            raise ValueError("premature end of file")
        return pixels.reshape(64, -1).mean(1)

    def read(self, position):
        """Returns a batch without its broken examples. One example in four is broken."""
        rows = []
        for i in range(BATCH):
            try:
                rows.append(self.decode(broken=i == position % BATCH))
            except ValueError as error:
                # the frames in the traceback of the exception keep their local variables alive
                self.errors.append(str(error) if self.twin else error)
        return torch.from_numpy(numpy.stack(rows).view(numpy.ndarray))


def live_bytes():
    refs[:] = [ref for ref in refs if ref() is not None]
    return sum(ref().nbytes for ref in refs)


def main():
    job = common.Job(__doc__, "--fixed", "keep the message, not the exception")
    common.settle()
    pictures = Pictures(job.twin)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for position in torch.randperm(job.steps_per_epoch).tolist():
            inputs = pictures.read(position)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
