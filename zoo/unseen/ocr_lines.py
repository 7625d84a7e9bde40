"""Reads lines of text from scans, which are opened at the start and decoded at the first access. With `--keep`, the
collate function also keeps the tensors that it creates."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, STEPS, EPOCHS, STEP_S = 420, 4, 66, 4, 0.14


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def write_scans(folder, count):
    rng = np.random.default_rng(3)
    for number in range(count):
        coarse = rng.integers(0, 255, (14, 14, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((SIDE, SIDE)).save(folder / f"{number:04}.jpg", quality=80)


class Scans(Dataset):
    def __init__(self, folder):
        self.images = [Image.open(path) for path in sorted(folder.glob("*.jpg"))]
        self.decoded = set()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.images[index].load()
        self.decoded.add(index)
        return self.images[index], index % 12


class Collate:
    def __init__(self, keep):
        self.keep, self.batches = keep, []

    def __call__(self, examples):
        pixels = torch.stack([self.pixels(image) for image, _ in examples])
        if self.keep:
            self.batches.append(pixels)
        return pixels, torch.tensor([label for _, label in examples])

    def pixels(self, image):
        small = np.asarray(image.resize((128, 128)), dtype=np.float32)
        return torch.from_numpy(small).permute(2, 0, 1) / 255


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 12, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(6))
        self.say = nn.Linear(12 * 36, 12)

    def forward(self, pixels):
        return self.say(self.look(pixels).flatten(1))


def train(scans, collate, step_s):
    loader = DataLoader(scans, batch_size=BATCH, shuffle=True, collate_fn=collate)
    reader = Reader()
    optimizer = torch.optim.AdamW(reader.parameters())
    rows = []
    for epoch in range(EPOCHS):
        for pixels, labels in loader:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(reader(pixels), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(max(0, began + step_s - time.monotonic()))
            kept = len(collate.batches) * BATCH * 3 * 128 * 128 * 4
            rows.append((len(rows) + 1, kept + len(scans.decoded) * SIDE * SIDE * 4, resident()))
        print(f"epoch {epoch + 1}: {loss.item():.3f}")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_scans(Path(folder), BATCH * (5 if args.tiny else STEPS))
        start = time.monotonic()
        rows = train(Scans(Path(folder)), Collate(args.keep), 0 if args.tiny else STEP_S)
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
