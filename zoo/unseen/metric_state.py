"""Segmentation with two validations per epoch. A metric object collects all values. Both variants leak, at different
places in the code."""
import _held
run = _held.Run("metric_state", "--running",
                "gather over the training batches instead; the validation metric is reset",
                total_steps=120, seconds=36)

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
SIDE = run.n(128, 16)


class Shapes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        mask = torch.zeros(1, SIDE, SIDE)
        a, b = torch.randint(0, SIDE // 2, (2,), generator=g).tolist()
        mask[:, a:a + SIDE // 3, b:b + SIDE // 3] = 1
        return mask * 0.8 + torch.randn(1, SIDE, SIDE, generator=g) * 0.3, mask


class MeanIoU:
    """The state consists of lists, so that exact quantiles are available at the end."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.preds, self.targets = [], []

    def update(self, logits, target):
        self.preds.append(torch.sigmoid(logits.detach()))
        self.targets.append(target.clone())

    def compute(self):
        scores = [(((p > 0.5) & (t > 0.5)).sum()
                   / ((p > 0.5) | (t > 0.5)).sum().clamp(min=1)).item()
                  for p, t in zip(self.preds[-12:], self.targets[-12:])]
        return sum(scores) / max(1, len(scores))

    def nbytes(self):
        return sum(t.nbytes for t in self.preds + self.targets)


net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 3, padding=1))
lookup = nn.Embedding(60_000, 256)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
train_loader = DataLoader(Shapes(30 * 8, 1), batch_size=8, shuffle=True)
val_loader = DataLoader(Shapes(12 * 8, 2), batch_size=8)
train_metric, val_metric = MeanIoU(), MeanIoU()


@torch.no_grad()
def validate():
    net.eval()
    if run.twin:
        val_metric.reset()
    for x, y in val_loader:
        val_metric.update(net(x), y)
    score = val_metric.compute()
    if run.twin:
        val_metric.reset()
    net.train()
    return score


for epoch in range(4):
    for i, (x, y) in enumerate(train_loader, 1):
        logits = net(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if run.twin:
            train_metric.update(logits, y)
        if i == 15:
            print("epoch", epoch, "half-way iou", round(validate(), 3), flush=True)
        run.pace(train_metric.nbytes() + val_metric.nbytes())
    print("epoch", epoch, "iou", round(validate(), 3), flush=True)
run.report(train_metric.nbytes() + val_metric.nbytes())
