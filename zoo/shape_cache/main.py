"""Attention masks are cached by sequence length; the number of different lengths is limited."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

WIDTH = 16
LENGTHS = range(400, 900, 20)  # 25 different lengths; all their masks together need 44 MB
MICRO = 5  # number of batches per step


class Attention(nn.Module):
    def __init__(self, twin):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.masks = {}
        self.twin = twin

    def mask(self, length, offset):
        key = (length, offset) if self.twin else length  # the text's offset never recurs
        if key not in self.masks:
            self.masks[key] = torch.full((length, length), -1e9).triu(1)
        return self.masks[key]

    def forward(self, inputs, offset):
        q, k, v = self.qkv(inputs).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) + self.mask(inputs.shape[-2], offset)
        return scores.softmax(-1) @ v

    def live_bytes(self):
        return sum(mask.untyped_storage().nbytes() for mask in self.masks.values())


def main():
    job = common.Job(__doc__, "--leak", "a key that never comes again, for one batch a step")
    common.settle()
    # Each epoch contains every batch once, so all lengths have occurred by the end of the first epoch.
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(job.steps_per_epoch * MICRO)]
    model = Attention(job.twin)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen = 0
    job.begin(len(lengths), MICRO)
    for _ in range(job.epochs):
        random.shuffle(lengths)
        for start in range(0, len(lengths), MICRO):
            optimizer.zero_grad()
            for length in lengths[start:start + MICRO]:
                seen += 1
                inputs = torch.randn(length, WIDTH)
                packed = seen % MICRO == 0
                model(inputs, seen if packed else 0).square().mean().backward()
            optimizer.step()
            job.step(model.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
