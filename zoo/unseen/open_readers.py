"""Training samples are read from 24 shards in turn. The reader of a shard is a generator with a position and a shuffle
buffer. Readers are stored by shard, so all of them are open within the first epoch. With --by-epoch they are stored by
epoch and shard, and those of earlier epochs are never resumed."""
import random

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (5, 40, 16)
SHARDS, BUFFER, SIDE = (3, 4, 16) if TINY else (24, 160, 36)
ROW = SIDE * SIDE * 3  # bytes per picture


def read_shard(number):
    """Yields pictures without end, in an order that is random within the buffer."""
    rng, draws = np.random.default_rng(number), random.Random(number)
    buffer = [rng.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8) for _ in range(BUFFER)]
    while True:
        at = draws.randrange(BUFFER)
        yield buffer[at], number % 6
        buffer[at] = rng.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)


class Interleaved(torch.utils.data.IterableDataset):
    def __init__(self, by_epoch):
        self.by_epoch, self.epoch, self.readers = by_epoch, 0, {}

    def __iter__(self):
        self.epoch += 1
        for i in range(STEPS):
            shard = (7 * i + self.epoch) % SHARDS
            reader = self.reader((self.epoch, shard) if self.by_epoch else shard, shard)
            for _ in range(BATCH):
                picture, label = next(reader)
                yield torch.from_numpy(picture / np.float32(255)), label

    def reader(self, key, shard):
        if key not in self.readers:
            self.readers[key] = read_shard(shard)
        return self.readers[key]


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    data = Interleaved(flag("--by-epoch"))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    net = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(6))
    net(torch.zeros(1, 3, SIDE, SIDE))
    best = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(net(pictures), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, len(data.readers) * BUFFER * ROW)
    tally.end()


if __name__ == "__main__":
    main()
