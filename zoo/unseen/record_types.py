"""A named tuple type is created for each batch and registered with a dispatcher, which keeps it. --by-fields creates
only one type per set of fields. (marshmallow #732, sympy #24581)"""
import collections
import functools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (4, 55, 16)


@functools.singledispatch
def norm(record):
    raise TypeError(record)


def make_type(n, fields):
    names = [f"f{n}_{i}" for i in range(fields)]
    kind = collections.namedtuple(f"Record{n}", names)
    norm.register(kind, lambda record: sum(float(one.norm()) for one in record))
    return kind


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(200, 256), nn.ReLU(), nn.Linear(256, 60))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(STEPS * BATCH, 200), torch.randn(STEPS * BATCH, 60)), BATCH)
    tally, n, known = Tally(0.18), 0, {}
    for _ in range(EPOCHS):
        for x, y in loader:
            outputs = net(x)
            loss = nn.functional.mse_loss(outputs, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            for part in range(6):
                key = part if flag("--by-fields") else (n, part)
                if key not in known:
                    known[key] = make_type(len(known), 60)
                norm(known[key](*outputs.detach().unbind(1)))
            tally.step(n, len(known) * 30_000)
    tally.end()


if __name__ == "__main__":
    main()
