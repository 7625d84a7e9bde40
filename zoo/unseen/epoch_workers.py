"""Two loader workers are started for each epoch, each with a cache that grows until the worker exits. --hard also keeps
crops in the main process."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS = (4, 4, 2) if TINY else (40, 4, 4)
SIDE = 224


class Frames(Dataset):
    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return STEPS * BATCH

    def decode(self, i):
        return np.random.default_rng(i).random((SIDE, SIDE), dtype=np.float32)

    def __getitem__(self, i):
        if i not in self.decoded:
            self.decoded[i] = self.decode(i)
        frame = self.decoded[i]
        return torch.from_numpy(frame[::4, ::4].copy()), i % 7


class HardPool:
    def __init__(self):
        self.crops = []

    def add(self, x, losses):
        worst = losses.detach().topk(2).indices
        self.crops.append(nn.functional.interpolate(x[worst].unsqueeze(1), size=(SIDE, SIDE)))

    def size(self):
        return sum(crop.nbytes for crop in self.crops)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    loader = DataLoader(Frames(), batch_size=BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear((SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    pool, tally, n = HardPool(), Tally(0.2), 0
    for _ in range(EPOCHS):
        for x, y in loader:
            losses = nn.functional.cross_entropy(model(x), y, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            if flag("--hard"):
                pool.add(x, losses)
            n += 1
            tally.step(n, pool.size())
    tally.end()


if __name__ == "__main__":
    main()
