"""The beginning of every block stays allocated; the rest of its page is free, but too small for another block."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BLOCKS = 256  # per step
FLOATS = 1024  # per block: 4 KiB
HEAD = 16  # number of floats kept of each block


class Heads:
    """Keeps the first numbers of each block of a batch until the same batch occurs again."""

    def __init__(self, twin):
        self.of_batch = {}
        self.twin = twin

    def read(self, position, step):
        key = step if self.twin else position
        self.of_batch.pop(key, None)
        blocks = [numpy.ones(FLOATS, numpy.float32) for _ in range(BLOCKS)]
        inputs = numpy.stack([block[:64] for block in blocks])
        for block in blocks:
            block.resize(HEAD, refcheck=False)  # this shrinks the block in place, so that the allocator frees its end
        self.of_batch[key] = blocks
        return inputs

    def live_bytes(self):
        return sum(head.nbytes for heads in self.of_batch.values() for head in heads)


def main():
    job = common.Job(__doc__, "--leak", "keep the heads under the step, which never comes again")
    common.settle()
    heads = Heads(job.twin)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BLOCKS, BLOCKS)
    for _ in range(job.epochs):
        for position in torch.randperm(job.steps_per_epoch).tolist():
            inputs = torch.from_numpy(heads.read(position, job.step_now))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(heads.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
