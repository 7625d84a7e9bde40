"""The features are in three mapped files, which are read in every epoch. --versions also writes each step's augmented
features to a new mapped file in /dev/shm, for a viewer. These files are never unmapped or removed. Does not use
torch."""
import os
import tempfile
from pathlib import Path

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH = (8, 4) if TINY else (180, 60)
SHARDS, ROWS, WIDTH = 3, 1200 if TINY else 12_000, 512
TAKE = ROWS * SHARDS // PER_EPOCH  # number of rows that a step reads: 600 of 2 kB each
KEEP = 200  # number of rows per version: 0.41 MB


class Shards:
    def __init__(self, folder):
        self.maps = []
        rng = np.random.default_rng(8)
        for k in range(SHARDS):
            block = rng.random((ROWS // 12, WIDTH), dtype=np.float32)
            with open(folder / f"shard{k}.bin", "wb") as file:
                for _ in range(12):
                    block.tofile(file)
            self.maps.append(np.memmap(folder / f"shard{k}.bin", np.float32, "r", shape=(ROWS, WIDTH)))

    def read(self, n):
        at = n % PER_EPOCH * TAKE
        shard = self.maps[at // ROWS]
        return shard[at % ROWS:at % ROWS + TAKE]


class Versions:
    def __init__(self, folder):
        self.folder, self.maps = folder, []

    def write(self, n, features):
        version = np.memmap(self.folder / f"version{n}.bin", np.float32, "w+", shape=(KEEP, WIDTH))
        version[:] = features[:KEEP]
        self.maps.append(version)

    def held(self):
        return sum(version.nbytes for version in self.maps)


def main():
    weights, rng, ebb, tally = np.zeros(WIDTH, np.float32), np.random.default_rng(9), marks(), Tally(0.22)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=memory) as name:
        shards, versions = Shards(Path(disk)), Versions(Path(name))
        for n in range(1, STEPS + 1):
            x = shards.read(n - 1) * rng.uniform(0.9, 1.1, WIDTH).astype(np.float32)
            weights += 1e-3 * x.T @ (np.sign(x[:, 0] - 0.5) - x @ weights) / len(x)
            if flag("--versions"):
                versions.write(n, x)
            tally.step(n, versions.held())
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
