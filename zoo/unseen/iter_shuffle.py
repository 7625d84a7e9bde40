"""A data stream of unknown length is shuffled in a buffer, as in loaders for very large data. Neither variant
leaks."""
import _held
run = _held.Run("iter_shuffle", "--warm", "the buffer stays filled from one epoch to the next",
                total_steps=320, seconds=36)

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
torch.manual_seed(0)
PER_EPOCH, BATCH, EPOCHS = 1280, 16, 4
WIDTH = run.n(40_000, 64)  # float32: 160 kB per example


class Shards(IterableDataset):
    """Reads records from shards and yields them in random order."""

    def __init__(self, capacity, warm):
        self.capacity, self.warm = capacity, warm
        self.rng = random.Random(5)
        self.buffer = []
        self.position = 0

    def read_record(self):
        self.position += 1
        rng = np.random.default_rng(self.position)
        record = np.empty(WIDTH, dtype=np.float32)
        record[:] = rng.standard_normal() * 0.1
        record[:64] = rng.standard_normal(64)
        return record

    def take(self):
        k = self.rng.randrange(len(self.buffer))
        self.buffer[k], self.buffer[-1] = self.buffer[-1], self.buffer[k]
        return self.buffer.pop()

    def __iter__(self):
        given, read = 0, 0
        budget = PER_EPOCH if not self.warm else 10 ** 9
        while given < PER_EPOCH:
            for _ in range(2):  # until the buffer is full, two records are added for each one removed
                if len(self.buffer) < self.capacity and read < budget:
                    self.buffer.append(self.read_record())
                    read += 1
            yield torch.from_numpy(self.take())
            given += 1


stream = Shards(capacity=run.n(600) if run.scale >= 1 else 600, warm=run.twin)
loader = DataLoader(stream, batch_size=BATCH)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
table = torch.nn.Embedding(100_000, 256)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(EPOCHS):
    for step, batch in enumerate(loader):
        x = batch[:, :64]
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.pace(sum(r.nbytes for r in stream.buffer))
    print("epoch", epoch, "loss", round(loss.item(), 4), "buffer", len(stream.buffer), flush=True)
run.report(sum(r.nbytes for r in stream.buffer))
