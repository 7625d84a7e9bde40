"""Lazily opened scans are sampled with replacement, so it takes several epochs until all are decoded. --jitter also
caches thumbnails, by their rotation angle."""
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tally import TINY, Tally, flag

COUNT, BATCH, EPOCHS, SIDE = (30, 10, 2, 240) if TINY else (400, 10, 5, 240)
THUMB = 60


class Scans(Dataset):
    def __init__(self, folder, jitter):
        self.images = [Image.open(path) for path in sorted(folder.glob("*.jpg"))]
        self.jitter, self.turned, self.touched = jitter, {}, set()
        self.rng = np.random.default_rng(4)

    def __len__(self):
        return len(self.images)

    def rotated(self, index, angle):
        key = (index, angle)
        if key not in self.turned:
            small = self.images[index].rotate(angle).resize((THUMB, THUMB))
            self.turned[key] = np.asarray(small, dtype=np.float32) / 255
        return self.turned[key]

    def __getitem__(self, index):
        image = self.images[index]
        image.load()
        self.touched.add(index)
        angle = float(self.rng.uniform(-8, 8)) if self.jitter else None
        if self.jitter:
            thumb = self.rotated(index, angle)
        else:
            thumb = np.asarray(image.resize((THUMB, THUMB)), dtype=np.float32) / 255
        return torch.from_numpy(thumb).permute(2, 0, 1), index % 5

    def live(self):
        return len(self.touched) * SIDE * SIDE * 4 + len(self.turned) * THUMB * THUMB * 12


def write_scans(folder):
    rng = np.random.default_rng(5)
    for i in range(COUNT):
        coarse = rng.integers(0, 255, (30, 30, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((SIDE, SIDE)).save(folder / f"{i:04}.jpg", quality=80)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="scans-"))
    write_scans(folder)
    scans = Scans(folder, flag("--jitter"))
    loader = DataLoader(scans, batch_size=BATCH, sampler=RandomSampler(scans, replacement=True))
    model = nn.Sequential(nn.Conv2d(3, 12, 5, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    model(torch.zeros(1, 3, THUMB, THUMB))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tally, n = Tally(0.17), 0
    for _ in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            tally.step(n, scans.live())
    tally.end()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
