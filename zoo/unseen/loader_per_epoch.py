"""Each epoch has its own loader with two persistent workers, because the crop size changes. A dictionary keeps the
loaders for their statistics, so their workers stay alive. --drop keeps only the statistics. (pytorch #64766,
#22133)"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (6, 30, 16)
TABLE = 1_000_000  # number of float64 values in the table of each worker: 8 MB
SIDE = 48


class Scans(Dataset):
    def __init__(self, size):
        self.size, self.lookup = size, None

    def __len__(self):
        return STEPS * BATCH

    def table(self):
        if self.lookup is None:
            self.lookup = np.random.default_rng(self.size).random(TABLE)
        return self.lookup

    def __getitem__(self, i):
        at = i * 997 % (TABLE - SIDE * SIDE)
        picture = self.table()[at:at + SIDE * SIDE].reshape(1, SIDE, SIDE)
        return torch.from_numpy(picture[:, :self.size, :self.size].astype(np.float32)), i % 3


def make_loader(size):
    return DataLoader(Scans(size), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(48, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    drop, tally, n, loaders, statistics = flag("--drop"), Tally(0), 0, {}, []
    for epoch in range(EPOCHS):
        size = SIDE - epoch % 2 * 2
        loaders[epoch] = make_loader(size)
        total = 0.0
        for pictures, labels in loaders[epoch]:
            loss = nn.functional.cross_entropy(net(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            n += 1
            tally.step(n, len(loaders) * 2 * TABLE * 8)
        statistics.append((size, total / STEPS))
        if drop:
            del loaders[epoch]
    print(statistics)
    tally.end()


if __name__ == "__main__":
    main()
