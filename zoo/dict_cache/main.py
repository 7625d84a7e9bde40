"""Features of random crops are cached under keys that never recur."""

import random
import sys
from collections import OrderedDict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 4
CROP = 256  # a crop of 256 x 256 floats has 256 KiB
ENTRIES = 160  # capacity of the bounded cache, which is full after 40 steps


class Features:
    def __init__(self, examples, twin):
        self.pictures = numpy.random.rand(examples, 288, 288).astype(numpy.float16)
        self.cache = OrderedDict()
        self.live_bytes = 0
        self.twin = twin

    def get(self, index):
        key = (index, random.randrange(1 << 30))  # the key contains the seed of the crop, which is always new
        if key not in self.cache:
            self.insert(key, self.compute(*key))
        return self.cache[key]

    def compute(self, index, seed):
        crop = random.Random(seed)
        x, y = crop.randrange(32), crop.randrange(32)
        return self.pictures[index, y:y + CROP, x:x + CROP].astype(numpy.float32)

    def insert(self, key, value):
        self.cache[key] = value
        self.live_bytes += value.nbytes
        if self.twin and len(self.cache) > ENTRIES:
            self.live_bytes -= self.cache.popitem(last=False)[1].nbytes


def main():
    job = common.Job(__doc__, "--fixed", f"keep the newest {ENTRIES} entries only")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    features = Features(examples, job.twin)
    model = nn.Sequential(nn.Linear(CROP, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            inputs = torch.from_numpy(numpy.stack([features.get(int(i)).mean(0) for i in batch]))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[..., :1]).backward()
            optimizer.step()
            job.step(features.live_bytes)
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
