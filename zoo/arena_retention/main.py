"""Batches of varying length are allocated and freed; the allocator retains as much memory as the longest batch
needed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 8
WIDTH = 1024
ROWS = 16  # a block of 16 rows of 1024 floats has 64 KiB, which is below malloc's threshold for mmap
TOKENS = 6  # per block


class Hardest:
    """Keeps the last block of the longest batch so far, for the log. This block was allocated last and has the highest
    address, so the heap cannot shrink when the other blocks are freed."""

    def __init__(self):
        self.length = 0
        self.block = None

    def offer(self, blocks):
        if len(blocks) > self.length:
            self.length = len(blocks)
            self.block = blocks[-1]


class Bank:
    """In the leaking variant, keeps 32 blocks of each batch "for contrastive negatives"; in the other variant,
    none."""

    def __init__(self, twin):
        self.kept = []
        self.twin = twin

    def add(self, blocks):
        if self.twin:
            self.kept.extend(blocks[:32])

    def live_bytes(self):
        return sum(block.nbytes for block in self.kept)


def load(lengths, rng):
    """Returns the blocks of one batch, 20 to 220 MB in total."""
    count = int(sum(lengths)) // TOKENS
    return [rng.random((ROWS, WIDTH), dtype=numpy.float32) for _ in range(count)]


def main():
    job = common.Job(__doc__, "--leak", "keep thirty-two blocks of every batch")
    common.settle()
    rng = numpy.random.default_rng(0)
    examples = job.steps_per_epoch * BATCH
    lengths = numpy.clip(rng.lognormal(6.0, 1.2, examples), 32, 12000).astype(int)
    model = nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    hardest, bank = Hardest(), Bank(job.twin)
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            blocks = load(lengths[batch], rng)
            hardest.offer(blocks)
            bank.add(blocks)
            optimizer.zero_grad()
            for block in blocks[:: max(1, len(blocks) // 16)]:
                model(torch.from_numpy(block)).square().mean().backward()
            optimizer.step()
            del blocks, block
            job.step(bank.live_bytes() + hardest.block.nbytes)
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
