#!/usr/bin/env python3
"""Measures the cost that remains in a process after ebb was attached and detached, compared with unchanged processes.

    bench/heap/detached.py loop|objects|train --library build/libebb-heap.so [--layouts N] [--rounds N] [--cycles N]
                           [--cores N]

Four processes are forked from one. They run blocks of a few hundredths of a second, one process at a time, in random
order. In the first, ebb was attached and detached; the second only imported the modules that an attach imports; two are
unchanged, and the ratio of their times shows the noise. The position of objects in memory changes the time by some per
cent, so the measurement is repeated with N random memory layouts, of which --cores are measured at a time. Prints the
CPU time relative to an unchanged process, with 95 % bounds over the layouts.
"""

import argparse
import gc
import math
import multiprocessing
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


def wait_for_ebb(library):
    """All compared processes need the same number of threads, because malloc takes locks only in a process with several
    threads."""
    from attached import Ebb

    return Ebb(library)


def nothing(library, cycles):
    wait_for_ebb(library)


def only_import(library, cycles):
    wait_for_ebb(library)
    from ebb import _attach

    _attach._import_parts()


def attach_and_detach(library, cycles):
    ebb = wait_for_ebb(library)
    for n in range(1, cycles + 1):
        ebb.start()
        assert ebb.wait_for("attached", n)["HEAP"] == "1"
        ebb.stop()
        ebb.wait_for("detached", n)


# the first process is the reference
SIDES = {"never": nothing, "again": nothing, "imported": only_import, "detached": attach_and_detach}
WHAT = {"again": "another process, never attached to", "imported": "after the imports of an attach",
        "detached": "after detach"}


def serve(channel, unit, units, prepare, seed):
    chance = random.Random(seed)
    moved = [bytes(chance.randrange(16, 500)) for _ in range(chance.randrange(20_000))]
    prepare()
    gc.collect()
    # the garbage collector skips frozen objects; otherwise ebb's modules would slow down the collections of this small
    # process
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
    """Returns, for each process, the logarithm of its CPU time relative to that of the reference process, as a mean
    over all rounds."""
    library = os.path.abspath(arguments.library)
    channels = {name: fork(unit, units, lambda prepare=prepare: prepare(library, arguments.cycles), f"{name}{layout}")
                for name, prepare in SIDES.items()}
    chance, order, logs = random.Random(layout), list(SIDES), {name: [] for name in WHAT}
    for _ in range(arguments.rounds):
        chance.shuffle(order)
        times = {name: block(channels[name]) for name in order}
        for name, found in logs.items():
            found.append(math.log(times[name] / times["never"]))
    for channel in channels.values():
        channel.shutdown(socket.SHUT_RDWR)  # close() would end nothing: children have copies of this descriptor
        channel.close()
        os.wait()
    return {name: heap.trimmed_mean(found) for name, found in logs.items()}


def take_core(cores):
    os.sched_setaffinity(0, {cores.get()})


def measure_numbered(job):
    arguments, units, layout = job
    return measure_layout(arguments, workloads.make(arguments.name, 0), units, layout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("loop", "objects", "train"))
    parser.add_argument("--library", required=True)
    parser.add_argument("--layouts", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--cores", type=int, default=1)
    arguments = parser.parse_args()
    unit = workloads.make(arguments.name, 0)
    until, count = time.monotonic() + WARM_UP_S, 0
    while time.monotonic() < until:
        unit()
        count += 1
    units = max(1, round(BLOCK_S / (WARM_UP_S / count)))
    context = multiprocessing.get_context("forkserver")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0))[-arguments.cores:]:
        cores.put(core)
    jobs = [(arguments, units, n) for n in range(arguments.layouts)]
    with context.Pool(arguments.cores, take_core, (cores,)) as pool:
        layouts = pool.map(measure_numbered, jobs, chunksize=1)
    for name, what in WHAT.items():
        found = heap.percent([one[name] for one in layouts])
        print(f"{arguments.name}: {what}: {found[0]:+.2f} % [{found[1]:+.2f}, {found[2]:+.2f}], "
              f"{arguments.layouts} layouts of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
