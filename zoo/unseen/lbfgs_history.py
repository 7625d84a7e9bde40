"""A physics-informed network, trained with L-BFGS on all points. The optimizer's history is full with 40 directions, at
step 41; with --all it keeps all directions, each with two vectors of all weights. There are no epochs."""
import math

import torch
from torch import nn

from tally import TINY, Tally, flag, marks

STEPS, POINTS, WIDTH = (8, 50, 32) if TINY else (205, 800, 176)


def residual(net, x):
    """Returns the left side of u'' + u = 0 at X."""
    x = x.requires_grad_()
    u = net(x)
    first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    return torch.autograd.grad(first.sum(), x, create_graph=True)[0] + u


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(1, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
                        nn.Linear(WIDTH, 1))
    best = torch.optim.LBFGS(net.parameters(), lr=0.05, max_iter=1, history_size=10_000 if flag("--all") else 40,
                             tolerance_grad=0, tolerance_change=0)
    points, ends = torch.linspace(0, 6, POINTS)[:, None], torch.tensor([[0.0], [math.pi / 2]])

    def closure():
        best.zero_grad()
        loss = (residual(net, points) ** 2).mean() + ((net(ends) - torch.tensor([[0.0], [1.0]])) ** 2).mean()
        loss.backward()
        return loss

    ebb, tally = marks(), Tally(0.205)
    for n in range(1, STEPS + 1):
        best.step(closure)
        kept = next(iter(best.state.values()))
        tally.step(n, sum(each.nbytes for name in ("old_dirs", "old_stps") for each in kept.get(name, [])))
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
