"""Two persistent workers read packed records. For each corrupt record a worker keeps the exception object, whose
traceback keeps the unpacked data alive. With --text it keeps only the message."""
import os, zlib
import numpy as np
import kit
opt = kit.options("--text")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, BATCH, N = (2, 6, 8, 100_000) if opt.tiny else (4, 52, 8, 100_000)
ledger, pace = kit.Ledger(), kit.Pace(0.2, opt.tiny)


class Corrupt(Exception):
    pass


class Shards(torch.utils.data.Dataset):
    """One record in eight is corrupt, and is read again in each epoch."""

    def __init__(self):
        rng = np.random.default_rng(6)
        rows = [np.repeat(rng.integers(0, 3000, N // 50).astype(np.int32), 50) for _ in range(8)]
        self.packed = [zlib.compress(row.tobytes(), 1) for row in rows]
        self.bad = []

    def __len__(self):
        return STEPS * BATCH

    def decode(self, i):
        raw = zlib.decompress(self.packed[i % 8])  # 400 kB
        values = np.frombuffer(raw, np.int32) * 1e-3  # 800 kB
        if i % 8 == 3:
            raise Corrupt(f"record {i}: sum {values.sum():.0f}")
        return values

    def __getitem__(self, i):
        try:
            return torch.from_numpy(self.decode(i)[::25].copy()).float(), *self.about()
        except Corrupt as e:
            self.bad.append((i, str(e) if opt.twin else e))
        return self[i + 1]

    def about(self):
        """Returns the worker's pid, the bytes it keeps, and its resident memory."""
        kept = 0 if opt.twin else len(self.bad) * N * 12
        return os.getpid(), kept, kit.rss()["VmRSS"]


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(N // 25, 96), nn.ReLU(), nn.Linear(96, 1))
    adam = torch.optim.Adam(net.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Shards(), batch_size=BATCH, shuffle=True, num_workers=2,
                                         persistent_workers=True)
    n, kept, resident, seen = 0, {}, {}, []
    for epoch in range(EPOCHS):
        for x, pids, live, rss in loader:
            loss = (net(x) - x.mean(1, keepdim=True)).abs().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            n += 1
            pace.tick()
            kept[pids[-1].item()], resident[pids[-1].item()] = live[-1].item(), rss[-1].item()
            if n == 1 or n % 13 == 0:
                ledger.note(n, sum(kept.values()))
                seen.append((n, sum(resident.values())))
    ledger.close(EPOCHS, STEPS, workers_rss=seen)
