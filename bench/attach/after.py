#!/usr/bin/env python3
"""Measures the cost that remains in a process after ebb was attached and detached.

    bench/attach/after.py [--python build/venv/bin/python] [--processes 30] [--at-once 2] [--program build/ebb]

Each process runs turns of a small program. The instructions and the CPU time per turn of its main thread are measured
for some seconds, before and after an attach and a detach; every third process is a control, which is never attached to.
Prints the mean change with its 95 % interval. Instructions require hardware counters (perf events). Any import changes
the time, even one of the standard library. With --imported, ebb's modules are imported before the first measurement, so
the change is that of the hooks alone. The modules that ebb imports change the position of objects in memory, which
alters the CPU time by some per cent in either direction, so many processes are needed."""

import argparse
import ctypes
import math
import mmap
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
ATTRIBUTE_BYTES = 112
INSTRUCTIONS, EXCLUDE_KERNEL_AND_HYPERVISOR = 1, 3 << 5
CONTROL_EVERY = 3

PROGRAM = """
import gc, mmap, os, random, struct, sys, threading
kind, path, is_imported = sys.argv[1:]
if is_imported == "True":
    import ctypes, socket
    from ebb import _attach
    _attach._import_parts()
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
# The heap of a job that has run for a while: blocks of many sizes, half of them freed. In a new heap, the first import of
# any module makes later allocations some per cent slower.
blocks = [bytearray(random.randrange(1, 4000)) for _ in range(40000)]
random.shuffle(blocks)
del blocks[::2]
# malloc takes its locks once a process has had a second thread, as every torch program has
thread = threading.Thread(target=turn)
thread.start()
thread.join()
for _ in range(300):
    turn()
gc.freeze()
gc.disable()  # a collection in some of the turns only would hide small changes
turns, shared = 0, mmap.mmap(os.open(path, os.O_RDWR), 4096)
print("ready", flush=True)
while not shared[8]:
    turn()
    turns += 1
    struct.pack_into("Q", shared, 0, turns)
"""


def open_counter(pid):
    """Returns a descriptor that counts the user-space instructions of the main thread of PID, or None."""
    attributes = struct.pack("IIQQQQQ", 0, ATTRIBUTE_BYTES, INSTRUCTIONS, 0, 0, 0, EXCLUDE_KERNEL_AND_HYPERVISOR)
    buffer = ctypes.create_string_buffer(attributes, ATTRIBUTE_BYTES)
    fd = ctypes.CDLL(None, use_errno=True).syscall(PERF_EVENT_OPEN, buffer, pid, -1, -1, 0)
    return fd if fd >= 0 else None


class Target:
    def __init__(self, options, kind, folder):
        path = folder / "turns"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as f:
            self.shared = mmap.mmap(f.fileno(), 4096)
        self.job = subprocess.Popen([options.python, "-c", PROGRAM, kind, path, str(options.imported)],
                                    stdout=subprocess.PIPE, text=True,
                                    env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "python")})
        assert self.job.stdout.readline() == "ready\n"
        self.counter = open_counter(self.job.pid)

    def turns(self):
        return struct.unpack_from("Q", self.shared, 0)[0]

    def cpu_ns(self):
        return int(pathlib.Path(f"/proc/{self.job.pid}/task/{self.job.pid}/schedstat").read_text().split()[0])

    def instructions(self):
        return int.from_bytes(os.read(self.counter, 8), sys.byteorder) if self.counter is not None else None

    def read_at_next_turn(self):
        """Returns turns, CPU time and instructions just after the end of a turn."""
        turns = self.turns()
        while self.turns() == turns:
            pass
        return self.turns(), self.cpu_ns(), self.instructions()

    def per_turn(self, seconds):
        first = self.read_at_next_turn()
        time.sleep(seconds)
        last = self.read_at_next_turn()
        return [None if a is None else (b - a) / (last[0] - first[0]) for a, b in zip(first[1:], last[1:])]

    def end(self):
        self.shared[8] = 1
        assert self.job.wait() == 0


def measure(options, kind, number):
    """Returns whether the process was attached to, and the changes of CPU time and instructions per turn in per cent."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-after-"))
    is_attached = number % CONTROL_EVERY != 0
    try:
        target = Target(options, kind, folder)
        before = target.per_turn(options.seconds)
        command = [options.program, "attach", "--for", "1s", "--run-dir", folder / "run", str(target.job.pid)]
        ebb = subprocess.run(command if is_attached else ["sleep", "1.5"], stderr=subprocess.PIPE, text=True, check=True)
        assert "cannot" not in ebb.stderr and "without heap" not in ebb.stderr, ebb.stderr
        time.sleep(0.5)
        after = target.per_turn(options.seconds)
        target.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return is_attached, [None if a is None else 100 * (b / a - 1) for a, b in zip(before, after)]


def interval(values):
    mean = statistics.mean(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return f"{mean:+.3f} % ± {half:.3f} ({len(values)} processes, median {statistics.median(values):+.3f} %)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--processes", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=2, help="processes that run at the same time")
    parser.add_argument("--seconds", type=float, default=2.5, help="duration of each measurement")
    parser.add_argument("--imported", action="store_true",
                        help="the processes have imported ebb's modules before the first measurement")
    parser.add_argument("kinds", nargs="*", help="plain or torch (default: both)")
    options = parser.parse_args()
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    for kind in options.kinds or ["plain"] + ["torch"] * has_torch:
        with ThreadPoolExecutor(options.at_once) as pool:
            found = list(pool.map(lambda number: measure(options, kind, number), range(options.processes)))
        for column, what in enumerate(("CPU time", "instructions")):
            for is_attached, name in ((True, "after detach"), (False, "control")):
                values = [changes[column] for attached, changes in found
                          if attached == is_attached and changes[column] is not None]
                if values:
                    print(f"{kind:6} {what:12} {name:12} {interval(values)}", flush=True)


if __name__ == "__main__":
    main()
