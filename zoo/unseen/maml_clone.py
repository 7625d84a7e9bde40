"""Meta-learning. Each task trains a copy of the network with backward(create_graph=True). Afterwards each parameter and
its gradient refer to each other, so the copy stays alive. --functional uses autograd.grad instead. There are neither
loaders nor epochs."""
import copy
import weakref

import torch
from torch import nn
from torch.func import functional_call

from tally import TINY, Tally, flag

STEPS = 6 if TINY else 170
SHOTS, INPUTS, WIDTH, RATE = 16, 96, 480, 0.05


def make_task(generator):
    direction = torch.randn(INPUTS, generator=generator)
    x = torch.randn(2 * SHOTS, INPUTS, generator=generator)
    y = torch.sin(x @ direction / 10).unsqueeze(1)
    return x[:SHOTS], y[:SHOTS], x[SHOTS:], y[SHOTS:]


def adapt(net, x, y, functional):
    """Returns a copy of the network, its weights after one step as functions of the initial ones, and the gradients."""
    learner = copy.deepcopy(net)
    loss = nn.functional.mse_loss(learner(x), y)
    if functional:
        grads = torch.autograd.grad(loss, list(learner.parameters()), create_graph=True)
    else:
        loss.backward(create_graph=True)
        grads = [p.grad for p in learner.parameters()]
    weights = {name: p - RATE * g for (name, p), g in zip(learner.named_parameters(), grads)}
    return learner, weights, grads


class Watch:
    """Counts parameters and gradients of past tasks that are still alive."""

    def __init__(self):
        self.refs = []

    def add(self, learner, grads):
        self.refs += [weakref.ref(t) for t in [*learner.parameters(), *grads]]

    def live(self):
        self.refs = [ref for ref in self.refs if ref() is not None]
        return sum(ref().nbytes for ref in self.refs)


def meta_step(net, optimizer, task, watch, functional):
    x, y, query_x, query_y = task
    learner, weights, grads = adapt(net, x, y, functional)
    watch.add(learner, grads)
    loss = nn.functional.mse_loss(functional_call(learner, weights, (query_x,)), query_y)
    outer = torch.autograd.grad(loss, list(learner.parameters()))
    for p, g in zip(net.parameters(), outer):
        p.grad = g.detach()
    optimizer.step()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    generator, watch, tally = torch.Generator().manual_seed(2), Watch(), Tally(0.19)
    for n in range(1, STEPS + 1):
        meta_step(net, optimizer, make_task(generator), watch, flag("--functional"))
        tally.step(n, watch.live())
    tally.end()


if __name__ == "__main__":
    main()
