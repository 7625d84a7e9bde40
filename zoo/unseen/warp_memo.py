"""A plain torch loop trains on warped images. functools.lru_cache caches the results of the data set's warp method.
Each image has its own fixed angle, so all warped images are cached after one epoch. `--jitter` draws a new angle each
time, so no cached result is used again."""

import argparse
import functools
import json
import random
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, STEPS, EPOCHS, STEP_S = 160, 4, 65, 6, 0.09


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Leaves(Dataset):
    def __init__(self, count, jitter):
        rng = np.random.default_rng(0)
        self.pictures = [Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8))
                         for _ in range(count)]
        self.jitter = jitter

    def __len__(self):
        return len(self.pictures)

    @functools.lru_cache(maxsize=None)
    def warp(self, index, angle):
        picture = self.pictures[index].resize((SIDE, SIDE)).rotate(angle)
        return np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 255

    def __getitem__(self, index):
        angle = random.uniform(-20, 20) if self.jitter else index % 41 - 20
        return torch.from_numpy(self.warp(index, angle)), index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jitter", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    leaves = Leaves(BATCH * (5 if args.tiny else STEPS), args.jitter)
    loader = DataLoader(leaves, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows, start = [], time.monotonic()
    for epoch in range(EPOCHS):
        for pictures, labels in loader:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not args.tiny:
                time.sleep(max(0, began + STEP_S - time.monotonic()))
            kept = Leaves.warp.cache_info().currsize * 3 * SIDE * SIDE * 4
            rows.append((len(rows) + 1, kept, resident()))
        print(f"epoch {epoch} loss {loss.item():.3f}")
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
