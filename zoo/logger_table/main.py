"""A logger keeps a row of Python numbers for every example and is never flushed."""

import csv
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 64
WIDTH = 512  # values per row; each needs 40 bytes including its slot in the list


class TableLogger:
    """The rows of a table of embeddings. Flushing the table writes them to a file."""

    def __init__(self, path):
        self.path = path
        self.rows = []
        self.header_bytes = sys.getsizeof([0.0] * WIDTH)

    def add(self, step, embeddings):
        for row in embeddings.tolist():
            self.rows.append((step, row))

    def flush(self):
        with open(self.path, "a", newline="") as file:
            csv.writer(file).writerows((step, sum(row) / len(row)) for step, row in self.rows)
        self.rows.clear()

    def live_bytes(self):
        """Each row consists of a list, its floats, a pair and the slot of the pair. A float of 24
        bytes takes 32: Python's small blocks come in multiples of 16."""
        row = self.header_bytes + WIDTH * -(-sys.getsizeof(0.0) // 16) * 16 + sys.getsizeof((0, 0)) + 8
        return len(self.rows) * row


def main():
    job = common.Job(__doc__, "--fixed", "flush the table after each step")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs, labels = torch.randn(examples, 64), torch.randint(10, (examples,))
    body, head = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh()), nn.Linear(WIDTH, 10)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
    logger = TableLogger(os.path.join(job.folder, "table.csv"))
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            embeddings = body(inputs[batch])
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(embeddings), labels[batch]).backward()
            optimizer.step()
            logger.add(job.step_now, embeddings.detach())
            if job.twin:
                logger.flush()
            job.step(logger.live_bytes())
        job.save(body)
    job.end()


if __name__ == "__main__":
    main()
