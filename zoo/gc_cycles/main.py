"""Graphs of examples contain reference cycles, and the garbage collector was disabled "for
speed"."""

import gc
import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

NODES = 16
FLOATS = 16384  # per node: 64 KiB
EVERY = 10  # number of steps between two garbage collections

made = weakref.WeakSet()


class Node:
    """A node and its parent refer to each other, so only the garbage collector can free them."""

    def __init__(self, parent, rng):
        self.features = rng.random(FLOATS, dtype=numpy.float32)
        self.children = []
        self.parent = parent
        if parent:
            parent.children.append(self)
        made.add(self)


def build_tree(rng):
    root = Node(None, rng)
    nodes = [root]
    for i in range(1, NODES):
        nodes.append(Node(nodes[i // 2], rng))
    return nodes


def live_bytes():
    return sum(node.features.nbytes for node in made)


def main():
    job = common.Job(__doc__, "--fixed", f"collect every {EVERY} steps")
    common.settle()
    gc.disable()
    rng = numpy.random.default_rng(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * NODES, NODES)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = torch.from_numpy(numpy.stack([node.features[:64] for node in build_tree(rng)]))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            if job.twin and job.step_now % EVERY == 0:
                gc.collect()
            job.step(live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
