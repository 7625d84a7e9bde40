"""A held-out loss is summed as a tensor with its autograd graph, in a local variable of main(); --per-epoch resets the
sum in each epoch."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, BATCH, STEPS = (2, 8, 3) if TINY else (4, 8, 40)
SAVED = BATCH * 32 * 32 * 4 * (3 + 16 + 16)  # bytes of the input and of the two activations that ReLU saves


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.one(x))
        x = torch.relu(self.two(x))
        return self.head(x.mean((2, 3)))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    count = BATCH * STEPS
    loader = DataLoader(TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,))),
                        batch_size=BATCH, shuffle=True)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    tally, n, kept, gap_sum = Tally(0.2), 0, 0, 0.0
    for _ in range(EPOCHS):
        if flag("--per-epoch"):
            gap_sum, kept = 0.0, 0
        for x, y in loader:
            logits = net(x)
            loss = functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            noisy = net(x + 0.1 * torch.randn_like(x))
            gap = functional.mse_loss(noisy, logits.detach())
            gap_sum = gap_sum + gap
            kept += SAVED
            n += 1
            tally.step(n, kept)
        print(f"step {n}: mean gap {float(gap_sum) / n:.4f}", flush=True)
    tally.end()


if __name__ == "__main__":
    main()
