"""A plain loop sums validation losses for the log as tensors with their autograd graphs; --fixed sums plain numbers."""
import torch
from torch import nn

from kit import DEVICE, EPOCHS, FIXED, STEPS, TINY, Items, Tally

BATCH, WIDTH = (4, 64) if TINY else (256, 1024)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def validate(net, x, y):
    return nn.functional.cross_entropy(net(x), y)


def main():
    net = Net().to(DEVICE)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Items(BATCH, lambda i: (torch.randn(WIDTH), i % 10)), batch_size=BATCH)
    x_val, y_val = torch.randn(BATCH, WIDTH, device=DEVICE), torch.randint(10, (BATCH,), device=DEVICE)
    tally, step, watched = Tally(), 0, 0.0
    for _ in range(EPOCHS):
        for x, y in loader:
            opt.zero_grad()
            validate(net, x.to(DEVICE), y.to(DEVICE)).backward()
            opt.step()
            loss = validate(net, x_val, y_val)
            watched += loss.item() if FIXED else loss
            step += 1
            tally.step(step)
    print("watched", float(watched) / (EPOCHS * STEPS))
    tally.end()


if __name__ == "__main__":
    main()
