"""A heap contains the hundred hardest examples. Old entries are only marked as deleted. As long as they are not at the
top, they stay in the heap with their arrays. --compact rebuilds the heap when it has two hundred entries."""
import heapq

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 8) if TINY else (4, 45, 16)
ROOM, WIDTH, RENEW = (4, 40, 2) if TINY else (100, 40, 3)
TRACE = 25_000  # number of floats per entry: 100 kB


class Entry:
    __slots__ = ("loss", "trace", "gone")

    def __init__(self, loss, trace):
        self.loss, self.trace, self.gone = loss, trace, False

    def __lt__(self, other):
        return self.loss > other.loss


class Hardest:
    """If an example recurs, it gets a new entry, and its old one is marked as deleted."""

    def __init__(self, compact):
        self.compact, self.heap, self.by_slot = compact, [], {}

    def renew(self, slot, loss):
        trace = np.full(TRACE, loss, np.float32)
        if slot in self.by_slot:
            self.by_slot[slot].gone = True
        self.by_slot[slot] = entry = Entry(loss, trace)
        heapq.heappush(self.heap, entry)
        while self.heap[0].gone:
            heapq.heappop(self.heap)
        if self.compact and len(self.heap) > 2 * ROOM:
            self.heap = [entry for entry in self.heap if not entry.gone]
            heapq.heapify(self.heap)

    def held(self):
        return len(self.heap) * TRACE * 4


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    rows = STEPS * BATCH
    data = TensorDataset(torch.randn(rows, WIDTH), torch.randint(0, 3, (rows,)), torch.arange(rows))
    net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer, hardest = torch.optim.SGD(net.parameters(), lr=0.02), Hardest(flag("--compact"))
    hardest.renew(-1, 1e9)  # the hardest example of an earlier run stays at the top of the heap
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for x, y, index in DataLoader(data, batch_size=BATCH, shuffle=True):
            losses = nn.functional.cross_entropy(net(x), y, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            for at in losses.detach().topk(RENEW).indices.tolist():
                hardest.renew(int(index[at]) % ROOM, float(losses[at]))
            n += 1
            tally.step(n, hardest.held())
    tally.end()


if __name__ == "__main__":
    main()
