"""Two persistent loader workers each have a cache of decoded samples. Samples are distributed at random, so the caches
still grow after the first epoch, but in each epoch only half as much as in the previous one."""
import _held
run = _held.Run("worker_fill", "--aug-key",
                "augmented samples are cached, with the angle in the key", total_steps=128,
                seconds=38)

import random
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

torch.set_num_threads(1)
torch.manual_seed(0)
SIDE = run.n(150, 16)
N, BATCH, EPOCHS = 256, 16, 8


def packed(i):
    rng = np.random.default_rng(i)
    small = rng.random((3, 10, 10), dtype=np.float32)
    return zlib.compress(small.tobytes())


class Packed(Dataset):
    def __init__(self, counts):
        self.samples = [packed(i) for i in range(N)]
        self.cache = {}
        self.counts = counts

    def __len__(self):
        return N

    def decode(self, i, angle):
        small = np.frombuffer(zlib.decompress(self.samples[i]), dtype=np.float32).reshape(3, 10, 10)
        return np.ascontiguousarray(
            np.kron(small, np.ones((SIDE // 10 + 1,) * 2, dtype=np.float32))[:, :SIDE, :SIDE]
        ) + np.float32(angle)

    def __getitem__(self, i):
        angle = random.gauss(0, 0.1) if run.twin else 0.0
        key = (i, angle)
        if key not in self.cache:
            self.cache[key] = self.decode(i, angle)
            info = get_worker_info()
            self.counts[info.id if info else 0] += self.cache[key].nbytes
        x = self.cache[key]
        return torch.from_numpy(x[:, ::5, ::5].copy()), i % 4


def main():
    counts = torch.zeros(2, dtype=torch.int64).share_memory_()
    loader = DataLoader(Packed(counts), batch_size=BATCH, shuffle=True, num_workers=2,
                        persistent_workers=True, prefetch_factor=2)
    side = len(range(0, SIDE, 5))
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * side * side, 128),
                              torch.nn.ReLU(), torch.nn.Linear(128, 4))
    big = torch.nn.Embedding(80_000, 256)  # noqa
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            run.pace(int(counts.sum()))
        print("epoch", epoch, round(loss.item(), 3), "caches MiB", [int(c) >> 20 for c in counts],
              flush=True)
    run.report(int(counts.sum()), workers=[int(c) for c in counts])


if __name__ == "__main__":
    main()
