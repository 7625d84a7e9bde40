"""Staging buffers for copies to the GPU, pinned if there is a GPU; one buffer is lost per step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 64
WIDTH = 4096  # x 64 floats: 1 MiB


class StagingPool:
    """Lends buffers, which must be returned. They are never freed, because allocating pinned memory is expensive."""

    def __init__(self):
        self.all = []
        self.free = []

    def take(self):
        if not self.free:
            buffer = torch.empty(BATCH, WIDTH, pin_memory=torch.cuda.is_available())
            self.all.append(buffer)
            return buffer
        return self.free.pop()

    def give(self, buffer):
        self.free.append(buffer)

    def live_bytes(self):
        return sum(buffer.untyped_storage().nbytes() for buffer in self.all)


def stage(pool, batch, twin):
    """Copies a batch through a buffer of the pool."""
    buffer = pool.take()
    moved = buffer.copy_(batch).to("cuda" if torch.cuda.is_available() else "cpu", copy=True)
    if twin:
        pool.give(buffer)
    return moved


def main():
    job = common.Job(__doc__, "--fixed", "return the buffer to the pool")
    common.settle()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    pool = StagingPool()
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = stage(pool, torch.randn(BATCH, WIDTH), job.twin)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(pool.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
