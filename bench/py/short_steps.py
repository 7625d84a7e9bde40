#!/usr/bin/env python3
"""What ebb costs short steps: a plain training loop whose steps take from half a millisecond on.

    bench/py/short_steps.py [--work-ms N]... [--seconds N] [--rounds N] [--package FOLDER]... [--python PATH]

One process, under a real `ebb run`, without the heap profiler: a DataLoader, an optimizer, and work that
fills the caches, as a step does. In turns, in blocks of a few steps, the shim's hooks are taken out and put
back, and the CPU time of neighbouring blocks is compared: separate processes differ by several percent.
--package gives the folder of a Python package of ebb (this one's: python); several are measured in turns.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_S = 0.1
RESAMPLES = 1000


class Loop:
    """A training whose step takes about WORK_MS."""

    def __init__(self, work_ms):
        import numpy
        import torch

        torch.set_num_threads(1)
        data = torch.utils.data.TensorDataset(torch.randn(1 << 18, 8))
        self.batches = iter(torch.utils.data.DataLoader(data, batch_size=1))
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        matrix = numpy.random.default_rng(1).random((256, 256))
        self.piece = lambda: matrix @ matrix
        took = []
        for _ in range(50):
            begin = time.process_time()
            self.piece()
            took.append(time.process_time() - begin)
        self.pieces = round(work_ms / 1000 / statistics.median(took))

    def step(self):
        (batch,) = next(self.batches)
        for _ in range(self.pieces):
            self.piece()
        self.optimizer.zero_grad()
        self.model(batch).sum().backward()
        self.optimizer.step()


class Switch:
    def __init__(self):
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self.hooks = optimizer._global_optimizer_post_hooks
        [(self.key, self.hook)] = self.hooks.items()
        self.iterator = dataloader._BaseDataLoaderIter
        self.take = self.iterator.__next__

    def set(self, on):
        self.iterator.__next__ = self.take if on else self.take.__wrapped__
        if on:
            self.hooks[self.key] = self.hook
        else:
            self.hooks.pop(self.key, None)


def measure(arguments):
    loop, switch = Loop(arguments.work_ms[0]), Switch()
    for _ in range(30):
        loop.step()
    begin = time.perf_counter()
    loop.step()
    steps = max(2, round(BLOCK_S / (time.perf_counter() - begin)))
    pairs, end, chance = [], time.monotonic() + arguments.seconds, random.Random(1)
    while time.monotonic() < end:
        found = {}
        for on in chance.sample((True, False), 2):
            switch.set(on)
            begin = time.process_time()
            for _ in range(steps):
                loop.step()
            found[on] = (time.process_time() - begin) / steps
        pairs.append((found[True], found[False]))
    switch.set(True)
    pathlib.Path(arguments.measure).write_text(json.dumps(pairs))


def under_ebb(arguments, package, work_ms):
    ebb = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    env.update(EBB_HEAP="0", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    shim = pathlib.Path(package).resolve() / "ebb" / "_shim"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "found.json")
        # as with the shim, but this package's
        subprocess.run([ebb, "run", "-q", "-d", f"{folder}/run", "--no-shim", "--", "env", "EBB_SHIM=1",
                        f"PYTHONPATH={shim}", arguments.python, os.path.abspath(__file__), "--measure", str(out),
                        "--seconds", str(arguments.seconds), "--work-ms", str(work_ms)],
                       env=env, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def interval(values):
    chance = random.Random(1)
    found = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def show(package, pairs):
    extra_us = [1e6 * (on - off) for on, off in pairs]
    percent = [100 * (on / off - 1) for on, off in pairs]
    (low_us, high_us), (low, high) = interval(extra_us), interval(percent)
    step_ms = 1000 * statistics.median(off for _, off in pairs)
    print(f"  {package:24} steps of {step_ms:6.2f} ms: {statistics.median(extra_us):+6.0f} µs [{low_us:+.0f}, {high_us:+.0f}]  "
          f"{statistics.median(percent):+.2f} % [{low:+.2f}, {high:+.2f}]  {len(pairs)} pairs", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-ms", type=float, action="append")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--package", action="append")
    parser.add_argument("--python", default=sys.executable, help="one that has torch and numpy")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments)
        return
    packages = arguments.package or [str(ROOT / "python")]
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; CPU time, medians of pairs of blocks", flush=True)
    for work_ms in arguments.work_ms or [0, 2, 10, 40]:
        found = {package: [] for package in packages}
        for _ in range(arguments.rounds):
            for package in packages:
                found[package] += under_ebb(arguments, package, work_ms)
        for package in packages:
            show(package, found[package])


if __name__ == "__main__":
    main()
