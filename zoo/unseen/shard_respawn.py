"""Two workers decode images and cache the results. The key of the cache contains an angle that never recurs. The
workers live for the whole training; with --respawn they are restarted in each epoch, which frees their caches."""
import os
import random

from kit import Ledger, Pace, options, torch_cpu

EPOCHS, STEPS, BATCH, PIXELS = 6, 30, 6, 50_000

opts = options("--respawn")
torch = torch_cpu()
import numpy as np
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, count):
        self.count = count
        self.memo = {}

    def __len__(self):
        return self.count

    def decode(self, index, angle):
        key = (index, angle)
        if key not in self.memo:
            image = np.full(PIXELS, index + angle, dtype=np.float32)
            self.memo[key] = np.roll(image, index)
        return self.memo[key]

    def __getitem__(self, index):
        image = self.decode(index, round(random.uniform(-15, 15), 4))
        held = sum(a.nbytes for a in self.memo.values())
        return torch.from_numpy(image[::1000].copy()), index % 4, os.getpid(), held


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    loader = DataLoader(Scans(steps * BATCH), batch_size=BATCH, shuffle=True, num_workers=2,
                        persistent_workers=not opts.twin)
    model = nn.Sequential(nn.Linear(PIXELS // 1000, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    pace, ledger, step = Pace(0.18, opts.tiny), Ledger(), 0
    for _ in range(epochs):
        held = {} if opts.twin or not step else held
        for x, y, pids, bytes_held in loader:
            held[int(pids[0])] = int(bytes_held.max())
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            pace.tick()
            if step == 1 or step % 6 == 0:
                ledger.note(step, sum(held.values()))
    ledger.close(epochs, steps)


main()
