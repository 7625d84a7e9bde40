"""At the start of each epoch, a sampler draws the order of 450,000 examples as a list of Python integers, so that a run
can be resumed. There are two loader workers. --log-orders keeps the orders of all epochs. (pytorch #50201, #45427)"""
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (6, 34, 32)
EXAMPLES, WIDTH = 450_000, 1200


class Waves(torch.utils.data.Dataset):
    def __len__(self):
        return EXAMPLES

    def __getitem__(self, i):
        phase = torch.arange(WIDTH) * (1 + i % 7) / 90 + i
        return phase.sin() + 0.1 * phase.cos(), i % 7


class Orders(torch.utils.data.Sampler):
    """Stores the order of this epoch, or of all epochs."""

    def __init__(self, log_all):
        self.log_all, self.orders, self.draw = log_all, [], torch.Generator().manual_seed(3)

    def __len__(self):
        return STEPS * BATCH

    def __iter__(self):
        if not self.log_all:
            self.orders.clear()
        self.orders.append(torch.randperm(EXAMPLES, generator=self.draw).tolist())
        for i in range(len(self)):
            yield self.orders[-1][i]

    def size(self):
        return len(self.orders) * EXAMPLES * (32 + 8)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    orders = Orders(flag("--log-orders"))
    loader = torch.utils.data.DataLoader(Waves(), batch_size=BATCH, sampler=orders, num_workers=2,
                                         persistent_workers=True)
    net = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 7))
    best = torch.optim.AdamW(net.parameters(), 1e-4)
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for waves, labels in loader:
            loss = nn.functional.cross_entropy(net(waves), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, orders.size())
    tally.end()


if __name__ == "__main__":
    main()
