"""Trains a classifier on a folder of PNG files; the data set caches decoded images."""
import _held
run = _held.Run("image_getitem", "--augment-first",
                "augment before the cache, so that the key has the crop in it", total_steps=180,
                seconds=36)

import os
import random
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
SIDE = run.n(200, 16)


def make_folder(folder, count=240):
    rng = np.random.default_rng(1)
    for i in range(count):
        small = rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(small).resize((SIDE + 24, SIDE + 24), Image.BILINEAR).save(
            os.path.join(folder, f"{i % 5}_{i:04}.png"), compress_level=1)


class Folder(Dataset):
    def __init__(self, root):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.decoded = {}

    def __len__(self):
        return len(self.files)

    def load(self, i, x, y):
        key = (i, x, y)
        if key not in self.decoded:
            with Image.open(self.files[i]) as im:
                pixels = np.asarray(im.convert("RGB"),
                                    dtype=np.float32)[int(y):int(y) + SIDE, int(x):int(x) + SIDE]
            self.decoded[key] = torch.from_numpy(
                np.ascontiguousarray(pixels.transpose(2, 0, 1))).div_(255)
        return self.decoded[key]

    def __getitem__(self, i):
        if run.twin:  # the random crop never repeats
            x, y = random.uniform(0, 24), random.uniform(0, 24)
        else:
            x, y = 12.0, 12.0
        image = self.load(i, x, y)
        if random.random() < 0.5:
            image = image.flip(-1)
        return image, int(os.path.basename(self.files[i])[0])


def main():
    with tempfile.TemporaryDirectory() as root:
        make_folder(root)
        data = Folder(root)
        loader = DataLoader(data, batch_size=4, shuffle=True)
        net = nn.Sequential(nn.AdaptiveAvgPool2d(32), nn.Conv2d(3, 8, 3, 2), nn.ReLU(),
                            nn.Flatten(), nn.Linear(8 * 225, 5))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        criterion = nn.CrossEntropyLoss()
        live = lambda: sum(t.nbytes for t in data.decoded.values())
        for epoch in range(3):
            running = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(net(x), y)
                loss.backward()
                optimizer.step()
                running += loss.item()
                run.pace(live())
            print(f"[{epoch}] {running / len(loader):.4f}", flush=True)
        run.report(live())


if __name__ == "__main__":
    main()
