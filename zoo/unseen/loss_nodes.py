"""Each step has four micro-batches of scans, which are decoded in the first epoch. All losses are kept, although only
the mean of the last hundred is needed. backward() frees the tensors saved in the graph of a loss, but not the nodes of
the graph, which take about NODES bytes. --item keeps only numbers."""
import io

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, ACCUMULATE, BATCH = (2, 4, 4, 2) if TINY else (5, 40, 4, 4)
SIDE, WIDTH, BLOCKS = 160, 96, 3
NODES = 18_000  # bytes of a graph after backward, measured in isolation


class Scans(torch.utils.data.Dataset):
    """Stores packed scans, each of which is unpacked once."""

    def __init__(self, count):
        rng, self.packed, self.scans = np.random.default_rng(2), [], [None] * count
        for i in range(count):
            file = io.BytesIO()
            scan = (rng.integers(0, 8, (SIDE, SIDE)) + np.arange(SIDE) * (i % 6) // 16).astype(np.float32)
            np.savez_compressed(file, scan=scan)
            self.packed.append(file.getvalue())

    def __len__(self):
        return len(self.packed)

    def __getitem__(self, i):
        if self.scans[i] is None:
            with np.load(io.BytesIO(self.packed[i])) as file:
                self.scans[i] = file["scan"]
        return self.scans[i] / 60, i % 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.rise, self.fall = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.fall(nn.functional.gelu(self.rise(self.norm(x))))


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Scans(STEPS * ACCUMULATE * BATCH), batch_size=BATCH, shuffle=True)
    net = nn.Sequential(nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, WIDTH, 16, 16), nn.Flatten(2), nn.AdaptiveAvgPool1d(1),
                        nn.Flatten(), *[Block() for _ in range(BLOCKS)], nn.Linear(WIDTH, 6))
    best = torch.optim.AdamW(net.parameters(), 3e-4)
    as_number, losses, tally, n = flag("--item"), [], Tally(0.21), 0
    for _ in range(EPOCHS):
        for i, (scans, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(net(scans), labels)
            (loss / ACCUMULATE).backward()
            losses.append(loss.item() if as_number else loss)
            if i % ACCUMULATE:
                continue
            best.step()
            best.zero_grad()
            n += 1
            if n % 10 == 0:
                print(f"step {n} loss {float(sum(losses[-100:])) / len(losses[-100:]):.3f}")
            filled = sum(scan is not None for scan in loader.dataset.scans) * SIDE * SIDE * 4
            tally.step(n, filled + (0 if as_number else len(losses) * NODES))
    tally.end()


if __name__ == "__main__":
    main()
