"""A replay buffer of episodes of varying length. The allocator is jemalloc, which returns pages to the system with a
delay."""

import os
import sys
from collections import deque
from ctypes.util import find_library
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

EPISODES = 64  # size of the ring buffer, which is full from step 32 on
WIDTH = 64
SHORTEST, LONGEST = 1024, 3072  # rows: 0.25 to 0.75 MiB


def use_jemalloc():
    """Executes this program again with jemalloc as its allocator."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    if "jemalloc" in preloaded:
        return
    library = find_library("jemalloc")
    if not library:
        common.not_here("there is no libjemalloc (on Debian and Ubuntu: libjemalloc2)")
    os.environ["LD_PRELOAD"] = f"{preloaded}:{library}".lstrip(":")
    os.execv(sys.executable, sys.orig_argv)


class Replay:
    def __init__(self, limit):
        self.episodes = deque(maxlen=limit)
        self.rng = numpy.random.default_rng(0)

    def collect(self):
        """Adds two episodes per step."""
        for length in self.rng.integers(SHORTEST, LONGEST, 2):
            self.episodes.append(self.rng.random((length, WIDTH), dtype=numpy.float32))

    def sample(self):
        episode = self.episodes[int(self.rng.integers(len(self.episodes)))]
        return torch.from_numpy(episode[:32].copy())

    def live_bytes(self):
        return sum(episode.nbytes for episode in self.episodes)


def main():
    use_jemalloc()
    job = common.Job(__doc__, "--leak", "a ring without a length")
    common.settle()
    replay = Replay(None if job.twin else EPISODES)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * 2, 2)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            replay.collect()
            inputs = replay.sample()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(replay.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
