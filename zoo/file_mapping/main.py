"""Features are read from a mapped file: its pages stay resident until the kernel needs the
memory."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 32
WIDTH = 12800  # x 32 floats: 1.6 MB/step


def write_features(path, steps):
    rng = numpy.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(steps):
            file.write(rng.random((BATCH, WIDTH), dtype=numpy.float32).tobytes())


class Features:
    """Reads batches of a mapped file and keeps all of them in a list, to inspect difficult batches later."""

    def __init__(self, path, steps, twin):
        self.data = numpy.memmap(path, numpy.float32, "r", shape=(steps, BATCH, WIDTH))
        self.seen = []
        self.twin = twin

    def read(self, position):
        batch = self.data[position]
        # the leaking variant keeps a copy of the batch, the other variant a view of the mapped file
        self.seen.append(numpy.array(batch) if self.twin else batch)
        return batch.reshape(BATCH, 64, -1).mean(2)

    def live_bytes(self):
        return sum(batch.nbytes for batch in self.seen if batch.base is None)


def main():
    job = common.Job(__doc__, "--leak", "keep copies, where views of the file would do")
    common.settle()
    path = os.path.join(job.folder, "features.bin")
    write_features(path, job.steps_per_epoch)
    features = Features(path, job.steps_per_epoch, job.twin)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for position in torch.randperm(job.steps_per_epoch).tolist():
            inputs = torch.from_numpy(numpy.asarray(features.read(position)))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(features.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
