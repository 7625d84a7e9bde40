"""At the end of each epoch, an exponential moving average of the weights is copied. The copies are kept, to be averaged
later."""
import _held
run = _held.Run("ema_snapshots", "--last-two", "keep the last two snapshots", total_steps=168,
                seconds=34)

import copy
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(11)


class EMA:
    def __init__(self, model, decay=0.99):
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)

    def snapshot(self):
        return copy.deepcopy(self.shadow)


def nbytes(snapshots):
    return sum(t.nbytes for s in snapshots for t in s.values())


def train():
    width = run.n(1100, 64)
    model = nn.Sequential(nn.Linear(128, width),
                          *[m for _ in range(4) for m in (nn.ReLU(), nn.Linear(width, width))],
                          nn.ReLU(), nn.Linear(width, 10))
    xs = torch.randn(28 * 32, 128)
    ys = (xs[:, :10].argmax(1))
    loader = DataLoader(TensorDataset(xs, ys), batch_size=32, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 168)
    ema = EMA(model)
    snapshots = deque(maxlen=2) if run.twin else []
    for epoch in range(6):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            ema.update(model)
            run.pace(nbytes(snapshots))
        snapshots.append(ema.snapshot())
        print(f"epoch {epoch} {loss.item():.3f}", flush=True)
    run.report(nbytes(snapshots))


if __name__ == "__main__":
    train()
