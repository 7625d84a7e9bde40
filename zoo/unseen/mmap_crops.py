"""Windows of mapped files are drawn at random with replacement, so the files become resident during the first two
epochs. --brighten maps half of the windows copy-on-write, changes their pixels and keeps the mappings. (arrow #34423,
datasets #4883)"""
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (4, 50, 8)
FILES, PER_FILE, SIDE = (4, 4, 181) if TINY else (20, 16, 181)
WINDOW = 131_072  # bytes in a window: 181 by 181 numbers of 4 bytes, rounded up


class Crops(Dataset):
    def __init__(self, folder, brighten):
        self.brightens, self.kept, self.paths, self.maps = brighten, [], [], []
        rng = np.random.default_rng(16)
        for number in range(FILES):
            path = os.path.join(folder, f"{number}.bin")
            rng.random(PER_FILE * WINDOW // 4, dtype=np.float32).tofile(path)
            self.paths.append(path)
            self.maps.append(np.memmap(path, np.float32, mode="r", shape=(PER_FILE, WINDOW // 4)))

    def __len__(self):
        return FILES * PER_FILE

    def brighten(self, number, window):
        values = np.memmap(self.paths[number], np.float32, mode="c", offset=window * WINDOW, shape=(WINDOW // 4,))
        values *= np.float32(1.2)
        self.kept.append(values)
        return values

    def __getitem__(self, i):
        number, window = divmod(i, PER_FILE)
        values = self.brighten(number, window) if self.brightens and i % 2 else self.maps[number][window]
        return torch.from_numpy(np.array(values[:SIDE * SIDE])).view(1, SIDE, SIDE), i % 3


def main():
    torch.manual_seed(17)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
                        nn.Conv2d(64, 80, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    with tempfile.TemporaryDirectory() as folder:
        crops, tally, n = Crops(folder, flag("--brighten")), Tally(0), 0
        draws = RandomSampler(crops, replacement=True, num_samples=STEPS * BATCH)
        for _ in range(EPOCHS):
            for pictures, labels in DataLoader(crops, batch_size=BATCH, sampler=draws):
                loss = nn.functional.cross_entropy(net(pictures), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                n += 1
                tally.step(n, len(crops.kept) * WINDOW)
        tally.end()


if __name__ == "__main__":
    main()
