"""A metric collects the logits of every batch on the device and is never reset; --fixed resets it after each epoch."""
import torch
from torch import nn

from kit import DEVICE, EPOCHS, FIXED, TINY, Items, Tally

BATCH, CLASSES = (4, 50) if TINY else (256, 4096)


class Retrieval:
    """Ranking needs all logits at once."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.logits, self.labels = [], []

    def update(self, logits, labels):
        self.logits.append(logits.softmax(1))
        self.labels.append(labels)

    def compute(self):
        hits = [(a.argmax(1) == b).float().mean() for a, b in zip(self.logits, self.labels)]
        return float(torch.stack(hits).mean())


def main():
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, CLASSES)).to(DEVICE)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Items(BATCH, lambda i: (torch.randn(256), i % CLASSES)), batch_size=BATCH)
    metric, tally, step = Retrieval(), Tally(), 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            logits = net(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            metric.update(logits.detach(), y)
            step += 1
            tally.step(step)
        print(f"epoch {epoch}: {metric.compute():.3f}", flush=True)
        if FIXED:
            metric.reset()
    tally.end()


if __name__ == "__main__":
    main()
