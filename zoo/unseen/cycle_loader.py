"""Trains on itertools.cycle(loader), which keeps every batch of the first epoch in order to repeat it, so memory stops
growing after the first of three epochs. --anew creates a new iterator for each epoch. Neither variant leaks.
"""
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

PASSES, STEPS, BATCH = (2, 4, 4) if TINY else (3, 64, 8)
SIDE = 72


class Noise(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        return torch.rand((3, SIDE, SIDE), generator=torch.Generator().manual_seed(i)), i % 6


def anew(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 17 * 17, 6))
    optimizer, tally = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9), Tally(0.205)
    loader = DataLoader(Noise(), batch_size=BATCH, shuffle=True)
    batches = anew(loader) if flag("--anew") else itertools.cycle(loader)
    for n in range(1, PASSES * STEPS + 1):
        x, y = next(batches)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tally.step(n, 0 if flag("--anew") else min(n, STEPS) * x.nbytes)
    tally.end()


if __name__ == "__main__":
    main()
