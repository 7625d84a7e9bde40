"""A function is recompiled for every new length; dynamo keeps all compiled versions, up to its limit."""

import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
import torch._dynamo
from torch import nn

WIDTH = 32
TABLE = 524288  # number of floats in the table of each version: 2 MiB
LIMIT = 24  # maximum number of compiled versions, reached at step 24
NEVER = 10**6

tables = []


def backend(graph, example_inputs):
    """Runs the graph unchanged. Each compiled version has its own table, as tuned kernels do."""
    table = torch.arange(TABLE, dtype=torch.float32)
    tables.append(weakref.ref(table))
    return lambda *inputs, table=table: graph(*inputs)


def live_bytes():
    return sum(ref().untyped_storage().nbytes() for ref in tables if ref() is not None)


def score(inputs, weight):
    return torch.tanh(inputs @ weight).square().mean()


def main():
    job = common.Job(__doc__, "--leak", "a limit that is never reached")
    common.settle()
    torch._dynamo.config.recompile_limit = NEVER if job.twin else LIMIT
    torch._dynamo.config.accumulated_recompile_limit = NEVER
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # loads dynamo's modules
    compiled = torch.compile(score, backend=backend, dynamic=False)
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    job.begin(job.steps_per_epoch, 1)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = torch.randn(16 + job.step_now, WIDTH)  # this length has not occurred before
            optimizer.zero_grad()
            compiled(inputs, weight).backward()
            optimizer.step()
            job.step(live_bytes())
        job.saved()
    job.end()


if __name__ == "__main__":
    main()
