"""After three epochs of warm-up, the hardest examples of each batch are added to a bank without a
limit. `--bounded` keeps the last 48 entries."""

import argparse
import json
import time
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, HARD, STEPS, EPOCHS, WARMUP, STEP_S = 32, 20, 55, 8, 3, 0.08


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 8, stride=8)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16 * 64, 20)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def mine(bank, x, y, losses):
    worst = losses.detach().topk(HARD).indices
    bank.append((x[worst], y[worst]))


def rehearse(bank, model, rng):
    """Returns the loss on part of an older entry of the bank."""
    x, y = bank[int(torch.randint(len(bank), (1,), generator=rng))]
    return F.cross_entropy(model(x[:8]), y[:8])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(1)
    steps = 6 if args.tiny else STEPS
    x, y = torch.rand(steps * BATCH, 3, 64, 64), torch.randint(0, 20, (steps * BATCH,))
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    model = Patches()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    bank = deque(maxlen=48 if args.bounded else None)
    rows, start = [], time.monotonic()
    for epoch in range(EPOCHS):
        for xb, yb in loader:
            began = time.monotonic()
            losses = F.cross_entropy(model(xb), yb, reduction="none")
            loss = losses.mean()
            if epoch >= WARMUP:
                mine(bank, xb, yb, losses)
                loss = loss + 0.5 * rehearse(bank, model, rng)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not args.tiny:
                time.sleep(max(0, began + STEP_S - time.monotonic()))
            rows.append((len(rows) + 1, len(bank) * HARD * 3 * 64 * 64 * 4, resident()))
        print(f"epoch {epoch} loss {loss.item():.3f} bank {len(bank)}")
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
