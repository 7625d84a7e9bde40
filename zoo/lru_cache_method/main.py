"""functools.lru_cache on a method: the keys of the cache keep alive every object on which the method was called."""

import functools
import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 16
SAMPLES = 16384  # a batch of 16 clips of 16384 floats has 1 MiB
ENTRIES = 40


class Clip:
    """The sound of one batch. Like any object, it is hashed by identity."""

    made = weakref.WeakSet()

    def __init__(self, rng):
        self.sound = rng.standard_normal((BATCH, SAMPLES), dtype=numpy.float32)
        Clip.made.add(self)

    def loudness(self, bands):
        return numpy.square(self.sound.reshape(BATCH, bands, -1)).mean(2)


def live_bytes():
    return sum(clip.sound.nbytes for clip in Clip.made)


def main():
    job = common.Job(__doc__, "--fixed", f"a cache of {ENTRIES} entries")
    common.settle()
    # Applies the decorator at run time, because it depends on the command-line option.
    Clip.loudness = functools.lru_cache(maxsize=ENTRIES if job.twin else None)(Clip.loudness)
    rng = numpy.random.default_rng(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            clip = Clip(rng)
            inputs = torch.from_numpy(clip.loudness(64))
            optimizer.zero_grad()
            wanted = torch.from_numpy(clip.loudness(1))
            nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
            del clip
            job.step(live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
