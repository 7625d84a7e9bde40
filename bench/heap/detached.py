#!/usr/bin/env python3
"""Measures the cost of a detached profiler: a process after attach and detach is compared with an untouched one.

    bench/heap/detached.py loop|objects --library build/libebb-heap.so [--layouts N] [--rounds N] [--cycles N]

Three processes are forked from one, and run blocks of a few hundredths of a second in turn, in random order. One
was attached to and detached from. The ratio of the other two shows the noise. The position of objects in memory costs
or saves up to 1 %, so the measurement is repeated for N layouts, each with random objects in front. Prints the CPU time
in percent, with 95 % bounds over the layouts.
"""

import argparse
import gc
import importlib
import math
import os
import pathlib
import random
import socket
import struct
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python"), str(HERE.parents[1] / "tests" / "py")]

import heap  # noqa: E402
import workloads  # noqa: E402

BLOCK_S = 0.025
WARM_UP_S = 1.0
MODULES = ("_attach", "_containers", "_control", "_hooks", "_patches", "_steps", "_truth", "_watch", "_wire")


def attach_and_detach(library, cycles):
    """All compared processes have the same modules and threads: importing alone moves later objects, and malloc takes
    its locks only if there are several threads."""
    from attached import Ebb

    ebb = Ebb(library)
    for name in MODULES:
        importlib.import_module(f"ebb.{name}")
    for n in range(1, cycles + 1):
        ebb.start()
        assert ebb.wait_for("attached", n)["HEAP"] == "1"
        ebb.stop()
        ebb.wait_for("detached", n)


def serve(channel, unit, units, prepare, seed):
    chance = random.Random(seed)
    moved = [bytes(chance.randrange(16, 500)) for _ in range(chance.randrange(20_000))]
    prepare()
    gc.collect()
    # freezing excludes the modules of ebb from each collection, which would otherwise slow down a small process
    gc.freeze()
    for _ in range(units):
        unit()
    channel.send(b"r")
    while channel.recv(1):
        cpu = time.process_time_ns()
        for _ in range(units):
            unit()
        channel.send(struct.pack("q", time.process_time_ns() - cpu))
    del moved


def fork(unit, units, prepare, seed):
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        serve(theirs, unit, units, prepare, seed)
        os._exit(0)
    theirs.close()
    ours.recv(1)
    return ours


def block(channel):
    channel.send(b"g")
    return struct.unpack("q", channel.recv(8))[0]


def measure_layout(arguments, unit, units, layout):
    """Returns the logarithms of the CPU-time ratios to the process that was never attached to, each as a mean over all
    rounds."""
    library = os.path.abspath(arguments.library)
    sides = {"never": 0, "detached": arguments.cycles, "again": 0}
    channels = {name: fork(unit, units, lambda cycles=cycles: attach_and_detach(library, cycles), f"{name}{layout}")
                for name, cycles in sides.items()}
    chance, order, logs = random.Random(layout), list(sides), {"detached": [], "again": []}
    for _ in range(arguments.rounds):
        chance.shuffle(order)
        times = {name: block(channels[name]) for name in order}
        for name, found in logs.items():
            found.append(math.log(times[name] / times["never"]))
    for channel in channels.values():
        channel.shutdown(socket.SHUT_RDWR)  # the child processes have copies of this descriptor
        channel.close()
        os.wait()
    return {name: heap.trimmed_mean(found) for name, found in logs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("loop", "objects"))
    parser.add_argument("--library", required=True)
    parser.add_argument("--layouts", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cycles", type=int, default=10)
    arguments = parser.parse_args()
    unit = workloads.make(arguments.name)
    until, count = time.monotonic() + WARM_UP_S, 0
    while time.monotonic() < until:
        unit()
        count += 1
    units = max(1, round(BLOCK_S / (WARM_UP_S / count)))
    layouts = [measure_layout(arguments, unit, units, n) for n in range(arguments.layouts)]
    for name, what in (("detached", "after detach"), ("again", "another process, never attached to")):
        found = heap.percent([one[name] for one in layouts])
        print(f"{arguments.name}: {what}: {found[0]:+.2f} % [{found[1]:+.2f}, {found[2]:+.2f}], "
              f"{arguments.layouts} layouts of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
