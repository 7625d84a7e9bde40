"""Each checkpoint is copied to a staging buffer and written in the background; the copy is never
freed."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 32
WIDTH = 2048  # 2048 x 2048 floats are 16 MiB of weights
EVERY = 15  # steps between checkpoints


class AsyncSaver:
    """Writes copies of the weights in another thread. Finished requests stay in a list, each with its copy."""

    def __init__(self, folder, twin):
        self.pool = ThreadPoolExecutor(1)
        self.path = os.path.join(folder, "checkpoint.pt")
        self.pending = []
        self.twin = twin

    def save(self, model):
        staged = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.pending.append((staged, self.pool.submit(torch.save, staged, self.path)))

    def wait(self):
        for _, future in self.pending:
            future.result()
        if self.twin:
            self.pending.clear()

    def live_bytes(self):
        return sum(t.untyped_storage().nbytes() for staged, _ in self.pending for t in staged.values())


def main():
    job = common.Job(__doc__, "--fixed", "forget a checkpoint once it is written")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs, labels = torch.randn(examples, WIDTH), torch.randint(10, (examples,))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saver = AsyncSaver(job.folder, job.twin)
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            job.step(saver.live_bytes())
            if job.step_now % EVERY == 0:
                saver.save(model)
                saver.wait()
                job.saved()
    job.end()


if __name__ == "__main__":
    main()
