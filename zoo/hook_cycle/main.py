"""A hook on a node of the autograd graph refers to a tensor that refers to the node: a cycle hidden from the
collector."""

import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 64
WIDTH = 4096  # 64 x 4096 floats are 1 MiB of activations per step


class Watched(nn.Module):
    """Whenever a gradient is computed, records the fraction of hidden units that were active."""

    def __init__(self, twin):
        super().__init__()
        self.first = nn.Linear(128, WIDTH)
        self.second = nn.Linear(WIDTH, 10)
        self.active = []
        self.refs = []
        self.twin = twin

    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs))
        self.watch(hidden, hidden.detach() if self.twin else hidden)
        self.refs.append(weakref.ref(hidden))
        return self.second(hidden)

    def watch(self, hidden, seen):
        """The node of HIDDEN refers to the hook, and the hook refers to SEEN. If SEEN is HIDDEN, which
        refers to its node, there is a cycle."""
        hidden.grad_fn.register_hook(lambda *_: self.active.append((seen > 0).float().mean().item()))

    def live_bytes(self):
        self.refs = [ref for ref in self.refs if ref() is not None]
        return sum(ref().untyped_storage().nbytes() for ref in self.refs)


def main():
    job = common.Job(__doc__, "--fixed", "give the hook a detached tensor, which has no node")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs, labels = torch.randn(examples, 128), torch.randint(10, (examples,))
    model = Watched(job.twin)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            job.step(model.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
