"""Trains a denoiser on images like those of ultrasound. Every batch has a new speckle pattern."""
import argparse
import functools
import json
import os
import shutil
import tempfile
import time
import weakref

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Speckle:
    """A random field and blurred versions of it, each of which is used many times."""

    alive = weakref.WeakSet()

    def __init__(self, rng, side=288):
        self.field = rng.standard_normal((side, side))
        Speckle.alive.add(self)

    def blurred(self, width):
        out = self.field
        for _ in range(width):
            out = 0.5 * out + 0.25 * (np.roll(out, 1, 0) + np.roll(out, 1, 1))
        return float(out.std())


class Phantoms(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.x = torch.rand(n, 1, 40, 40, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        err = [nn.functional.mse_loss(model(x), x).item() for x in loader]
    model.train()
    return sum(err) / len(err)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--fixed", action="store_true", help="give the cache a size")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    epochs, n, pause = (2, 96, 0) if a.tiny else (4, 660, 0.19)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    Speckle.blurred = functools.lru_cache(maxsize=8 if a.fixed else None)(Speckle.blurred)

    train = DataLoader(Phantoms(n), batch_size=12, shuffle=True)
    val = DataLoader(Phantoms(60), batch_size=30)
    model = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.GELU(), nn.Conv2d(12, 1, 5, padding=2))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    folder = tempfile.mkdtemp()
    truth, step, began = [], 0, time.monotonic()
    for epoch in range(epochs):
        for clean in train:
            speckle = Speckle(rng)
            level = torch.tensor([speckle.blurred(int(w)) for w in rng.integers(1, 4, len(clean))])
            top, left = rng.integers(0, 240, 2)
            patch = torch.from_numpy(speckle.field[top:top + 40, left:left + 40].astype(np.float32))
            noisy = clean + patch * level.view(-1, 1, 1, 1).float()
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(noisy), clean)
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0 or step == 1:
                truth.append([step, sum(s.field.nbytes for s in Speckle.alive), resident()])
            time.sleep(max(0, began + step * pause - time.monotonic()))
        torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
        print("epoch", epoch, "val", round(evaluate(model, val), 4))
    shutil.rmtree(folder)
    print("TRUTH " + json.dumps({"step_live_rss": truth}))


if __name__ == "__main__":
    main()
