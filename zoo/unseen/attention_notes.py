"""A process of 700 MB stores the attention of one head in each step; in total, the stored attention is 4 % of that
memory. --mean stores only the mean. (SMT-plusplus #2)"""
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (2, 4) if TINY else (4, 60)
TABLE = 1000 if TINY else 550_000  # number of rows, each with 256 numbers


class Notes:
    def __init__(self, mean):
        self.mean, self.seen = mean, []

    def add(self, weights):
        self.seen.append(weights.mean().item() if self.mean else weights[0].detach().clone())

    def held(self):
        return 0 if self.mean else sum(one.numel() for one in self.seen) * 4


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    table = torch.randn(TABLE, 256)
    attention, head = nn.MultiheadAttention(256, 4, batch_first=True), nn.Linear(256, 4)
    optimizer = torch.optim.SGD([*attention.parameters(), *head.parameters()], lr=0.01)
    ebb, tally, notes, n = marks(), Tally(0.16), Notes(flag("--mean")), 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            x = table[torch.randint(0, TABLE, (4, 176))]
            out, weights = attention(x, x, x, average_attn_weights=False)
            loss = nn.functional.cross_entropy(head(out.mean(1)), torch.randint(0, 4, (4,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            notes.add(weights[:, 0])
            n += 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, notes.held())
    tally.end()


if __name__ == "__main__":
    main()
