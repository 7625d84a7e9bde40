#!/usr/bin/env python3
"""Measures the cost that remains in a process after ebb was attached and detached.

    bench/attach/after.py [--python build/venv/bin/python] [--pairs 30] [--program build/ebb] [KIND]...

Two equal processes repeat the same turn on the same core. The CPU time per turn of both is measured at the same time,
before and after ebb attaches to one of them and detaches again. The change is that of the ratio of the two, so that
whatever slows the core slows both. In every third pair, a control, nothing is done between the measurements. Prints
the mean change with its 95 % interval.

The kinds are torch (training of a small model, with a DataLoader) and plain (a loop that does nothing but allocate).
An import moves later objects in memory, which alters the CPU time of the plain loop by some per cent in either
direction. --between import replaces the attach by an import of modules of the standard library, for comparison."""

import argparse
import functools
import math
import mmap
import os
import pathlib
import queue
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTROL_EVERY = 3
SETTLE_S = 1.0

# Shared memory, in 8-byte words: for each of the two processes the number of turns, a request to import, and a request
# to exit.
PROGRAM = """
import mmap, os, random, struct, sys, threading
kind, path, child, core = sys.argv[1:]
os.sched_setaffinity(0, {int(core)})
if kind == "torch":
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randint(0, 4, (64,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16)

    def turn():
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
else:
    def turn():
        kept = {}
        for i in range(1000):
            kept[i % 50] = [str(i), bytearray(i % 3000)]
# The heap of a job that has run for a while: blocks of many sizes, half of them freed
random.seed(1)
blocks = [bytearray(random.randrange(1, 4000)) for _ in range(40000)]
random.shuffle(blocks)
del blocks[::2]
# malloc takes its locks once a process has had a second thread, as every torch program has
thread = threading.Thread(target=len, args=("",))
thread.start()
thread.join()
for _ in range(300):
    turn()
shared, place, turns = mmap.mmap(os.open(path, os.O_RDWR), 4096), 24 * int(child), 0
while not shared[place + 16]:
    turn()
    turns += 1
    struct.pack_into("Q", shared, place, turns)
    if shared[place + 8]:
        shared[place + 8] = 0
        import asyncio, ctypes, email.message, json, sqlite3
"""


class Pair:
    """Two equal processes on one core."""

    def __init__(self, options, kind, core, folder):
        path = folder / "turns"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as f:
            self.shared = mmap.mmap(f.fileno(), 4096)
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "python"), "PYTHONHASHSEED": "0"}
        command = ["setarch", "-R", options.python, "-c", PROGRAM, kind, path]
        self.jobs = [subprocess.Popen([*command, str(child), str(core)], env=environment) for child in range(2)]

    def wait_for_turns(self):
        while not all(self.reading(child)[0] for child in range(2)):
            assert [job.poll() for job in self.jobs] == [None, None], "the program has exited"
            time.sleep(0.05)

    def reading(self, child):
        """Returns the number of turns and the CPU time in nanoseconds of CHILD."""
        turns = struct.unpack_from("Q", self.shared, 24 * child)[0]
        pid = self.jobs[child].pid
        cpu_ns = pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]
        return turns, int(cpu_ns)

    def ratio(self, seconds):
        """Returns the CPU time per turn of the first child, divided by that of the second."""
        first = [self.reading(child) for child in range(2)]
        time.sleep(seconds)
        last = [self.reading(child) for child in range(2)]
        per_turn = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(first, last)]
        return per_turn[0] / per_turn[1]

    def request(self, word):
        for child in range(2):
            self.shared[24 * child + 8 * word] = 1

    def end(self):
        self.request(2)
        assert [job.wait() for job in self.jobs] == [0, 0]


def attach_and_detach(options, pid, folder):
    command = [options.program, "attach", "--for", "1s", "--run-dir", folder / "run", str(pid)]
    ebb = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert "cannot" not in ebb.stderr and "without heap" not in ebb.stderr, ebb.stderr


def measure(options, kind, free_cores, number):
    """Returns whether the pair is a control, and the change of its ratio in per cent."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-after-"))
    is_control, core, pair = number % CONTROL_EVERY == 0, free_cores.get(), None
    child = number // CONTROL_EVERY % 2  # if the second child is the changed one, the ratio is inverted
    try:
        pair = Pair(options, kind, core, folder)
        pair.wait_for_turns()
        time.sleep(SETTLE_S)
        before = pair.ratio(options.seconds)
        if is_control:
            time.sleep(1.5)
        elif options.between == "import":
            pair.shared[24 * child + 8] = 1
            time.sleep(1.5)
        else:
            attach_and_detach(options, pair.jobs[child].pid, folder)
        time.sleep(SETTLE_S)
        after = pair.ratio(options.seconds)
        pair.end()
    finally:
        for job in pair.jobs if pair else ():
            job.kill()
        free_cores.put(core)
        shutil.rmtree(folder, ignore_errors=True)
    return is_control, 100 * ((after / before) ** (-1 if child else 1) - 1)


def interval(values):
    mean = statistics.mean(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return f"{mean:+.3f} % ± {half:.3f} ({len(values)} pairs, median {statistics.median(values):+.3f} %)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")],
                        default=sorted(os.sched_getaffinity(0)), help="each core has one pair at a time (default: all)")
    parser.add_argument("--seconds", type=float, default=6, help="duration of each measurement")
    parser.add_argument("--between", choices=["attach", "import"], default="attach")
    parser.add_argument("kinds", nargs="*", help="plain or torch (default: both)")
    options = parser.parse_args()
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    for kind in options.kinds or ["plain"] + ["torch"] * has_torch:
        free_cores = queue.SimpleQueue()
        for core in options.cores:
            free_cores.put(core)
        with ThreadPoolExecutor(len(options.cores)) as pool:
            found = list(pool.map(functools.partial(measure, options, kind, free_cores), range(options.pairs)))
        for is_control, name in ((False, f"after {options.between}"), (True, "control")):
            values = [change for control, change in found if control == is_control]
            if values:
                print(f"{kind:6} CPU time {name:13} {interval(values)}", flush=True)


if __name__ == "__main__":
    main()
