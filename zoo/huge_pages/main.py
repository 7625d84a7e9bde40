"""A sparse table in huge pages: the first write to a row makes two megabytes resident."""

import mmap
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

HUGE = 2 << 20
PAGES = 50
ROW = 256  # floats: 1 KiB
ROWS_IN_PAGE = HUGE // (4 * ROW)
NEW = 2  # number of untouched pages in which each step writes a row; none are left after step 25


class SparseTable:
    """The optimizer state of an embedding with many rows, of which only a few are used."""

    def __init__(self, twin):
        self.memory = mmap.mmap(-1, PAGES * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if not twin:
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.rows = torch.frombuffer(self.memory, dtype=torch.float32).view(-1, ROW)
        self.touched = set()

    def update(self, step, gradient):
        """Adds GRADIENT to one row in each of NEW pages. The pages are untouched until each page
        has been used once."""
        pages = [(step * NEW + i) % PAGES for i in range(NEW)]
        for page in pages:
            row = page * ROWS_IN_PAGE + random.randrange(4)
            self.rows[row] += gradient
            self.touched.add(row)

    def live_bytes(self):
        return len(self.touched) * ROW * 4


def main():
    job = common.Job(__doc__, "--fixed", "ordinary pages")
    common.settle()
    table = SparseTable(job.twin)
    model = nn.Sequential(nn.Linear(ROW, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch, 1)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = torch.randn(8, ROW)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            table.update(job.step_now, inputs.mean(0))
            job.step(table.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
