"""A program with a compiled model. The worker processes of torch.compile run until the program ends.

On a CPU, inductor compiles C++ in threads of the training process; it starts worker processes only for Triton, on a
GPU. This program starts the same worker processes on a CPU, where they only wait.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 32
WORKERS = 2


def start_workers():
    """Starts the workers and waits until they are ready, so that all runs begin in the same state."""
    import torch._inductor.config as config
    from torch._inductor.async_compile import AsyncCompile

    config.compile_threads = WORKERS
    config.worker_start_method = "subprocess"
    config.quiesce_async_compile_pool = False
    AsyncCompile.warm_pool()
    AsyncCompile.use_process_pool()
    AsyncCompile._ready_future.result()


def compile_model(folder):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    compiled = torch.compile(model)
    try:
        compiled(torch.randn(BATCH, 64)).sum().backward()
    except torch._dynamo.exc.BackendCompilerFailed as error:
        common.not_here(f"inductor cannot compile: {str(error).splitlines()[0]}")
    return model, compiled


def main():
    job = common.Job(__doc__, "--fixed", "no worker processes")
    common.settle()
    if not job.twin:
        start_workers()
    model, compiled = compile_model(job.folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            inputs = torch.randn(BATCH, 64)
            optimizer.zero_grad()
            nn.functional.mse_loss(compiled(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(0)
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
