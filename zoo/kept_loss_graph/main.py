"""A held-out loss is summed as a tensor with its autograd graph, so the activations of every step stay alive."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 64
WIDTH = 1024


def saved_bytes(loss, excluded):
    """Returns the bytes of all tensors saved in the autograd graph of LOSS, each shared storage once."""
    sizes, queue, seen = {}, [loss.grad_fn], set()
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        queue += [parent for parent, _ in node.next_functions]
        for name in dir(node):
            if not name.startswith("_saved_"):
                continue
            tensor = getattr(node, name)
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in excluded:
                    sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


class Trainer:
    def __init__(self, twin):
        layers = [nn.Linear(256, WIDTH), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.criterion = nn.CrossEntropyLoss()
        self.total = 0.0
        self.twin = twin

    def train(self, inputs, labels):
        self.optimizer.zero_grad()
        self.criterion(self.model(inputs), labels).backward()
        self.optimizer.step()

    def watch(self, inputs, labels):
        """Adds the held-out loss to a running total, for the log."""
        loss = self.criterion(self.model(inputs), labels)
        self.total += loss.item() if self.twin else loss
        return loss


def main():
    job = common.Job(__doc__, "--fixed", "add the number, not the tensor")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs, labels = torch.randn(examples, 256), torch.randint(10, (examples,))
    held_out, held_labels = torch.randn(BATCH, 256), torch.randint(10, (BATCH,))
    trainer = Trainer(job.twin)
    excluded = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    excluded |= {t.untyped_storage().data_ptr() for t in (held_out, held_labels)}
    live = 0
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            trainer.train(inputs[batch], labels[batch])
            loss = trainer.watch(held_out, held_labels)
            # the graph of this loss includes the graphs of all earlier losses
            if isinstance(trainer.total, torch.Tensor):
                live += saved_bytes(loss, excluded)
            del loss
            job.step(live)
        job.save(trainer.model)
    job.end()


if __name__ == "__main__":
    main()
