"""A data-loader worker caches augmented examples under keys that never recur; the training process does not
grow."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 4
FLOATS = 65536  # per example: 256 KiB


class Augmented(Dataset):
    def __init__(self, count, twin):
        self.count = count
        self.cache = {}
        self.twin = twin

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        key = (index, random.randrange(1 << 30))  # the key contains the seed of the augmentation, which is always new
        if self.twin:
            self.cache.clear()
        if key not in self.cache:
            self.cache[key] = self.augment(index)
        return self.cache[key][:64]

    def augment(self, index):
        return numpy.random.default_rng(index).random(FLOATS, dtype=numpy.float32)

    def live_bytes(self):
        return sum(example.nbytes for example in self.cache.values())


class Collator:
    """Adds to the batch the number of bytes in the worker's cache."""

    def __init__(self, data):
        self.data = data

    def __call__(self, batch):
        return torch.from_numpy(numpy.stack(batch)), self.data.live_bytes()


def main():
    job = common.Job(__doc__, "--fixed", "cache the last example only")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    data = Augmented(examples, job.twin)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True,
                        multiprocessing_context="fork", collate_fn=Collator(data))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for inputs, live_bytes in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(live_bytes)
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
