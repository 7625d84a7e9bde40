"""Data-loader workers read a list of Python objects. Reading copies the list page by page into each worker."""

import gc
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

WORKERS = 2
BATCH = 4000  # number of examples, which are small table rows and not images
PAGE = 4096


def make_items(count):
    """Returns (caption, path, label) of each example: small objects, about 430 bytes per example."""
    rng = random.Random(0)
    return [
        (f"{i:07} " + "%x" % rng.getrandbits(800), f"images/{i % 97:03}/{i:012}.jpg", i % 10)
        for i in range(count)
    ]


class ListData(Dataset):
    """Reading an object changes its reference count, so its page becomes private to the
    worker."""

    def __init__(self, count):
        self.items = make_items(count)
        pages = [[id(o) // PAGE for o in (item, item[0], item[1])] for item in self.items]
        self.pages, index = numpy.unique(numpy.array(pages), return_inverse=True)
        self.page_of = index.reshape(count, 3).astype(numpy.int32)
        self.touched = None

    def __len__(self):
        return len(self.items)

    def __getitems__(self, indices):
        if self.touched is None:
            self.touched = numpy.zeros(len(self.pages), dtype=bool)
        self.touched[self.page_of[indices]] = True
        return [self.read(i) for i in indices]

    def read(self, index):
        caption, path, label = self.items[index]
        return len(caption) + len(path), label

    def copied_bytes(self):
        return int(self.touched.sum()) * PAGE


class ArrayData(ListData):
    """Stores the same data in one buffer with offsets, so that reading it changes no reference counts."""

    def __init__(self, count):
        items = make_items(count)
        texts = [(caption + path).encode() for caption, path, _ in items]
        self.ends = numpy.cumsum([len(text) for text in texts])
        self.buffer = numpy.frombuffer(b"".join(texts), dtype=numpy.uint8)
        self.labels = numpy.array([label for _, _, label in items])

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        return [self.read(i) for i in indices]

    def read(self, index):
        start = self.ends[index - 1] if index else 0
        return len(self.buffer[start:self.ends[index]].tobytes()), int(self.labels[index])

    def copied_bytes(self):
        return 0


class Collator:
    """Adds to the batch the worker's id and the bytes of the list that this worker has copied so far."""

    def __init__(self, data):
        self.data = data

    def __call__(self, batch):
        values = torch.tensor(batch, dtype=torch.float32)
        return values, get_worker_info().id, self.data.copied_bytes()


def main():
    job = common.Job(__doc__, "--fixed", "keep the examples in arrays instead of a list")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    data = ArrayData(examples) if job.twin else ListData(examples)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True,
                        multiprocessing_context="fork", collate_fn=Collator(data))
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    copied = [0] * WORKERS
    gc.collect()  # prevents the first garbage collection after the fork from writing to every tuple
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for values, worker, copied_bytes in loader:
            values = values.view(100, -1, 2).mean(1)  # only the workers matter here, so there is little computation
            optimizer.zero_grad()
            nn.functional.mse_loss(model(values[:, :1]), values[:, 1:]).backward()
            optimizer.step()
            copied[worker] = copied_bytes
            job.step(sum(copied))
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
