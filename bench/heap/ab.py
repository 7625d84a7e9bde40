#!/usr/bin/env python3
"""Measures the cost of the profiler's hooks in a program by removing and restoring them while it runs.

    LD_BIND_NOW=1 ebb run -- bench/heap/ab.py loop|objects|train --library AB --rounds N --report FILE

One process runs blocks of a few hundredths of a second: without hooks, with hooks, and with hooks that include
Python's small objects, in random order within each round. Separate processes differ by several percent, but
adjacent blocks do not. Writes the time and the samples of every block.
"""

import argparse
import ctypes
import gc
import json
import random
import re
import time

import workloads

BLOCK_S = 0.025
WARM_UP_S = 3.0
SIDES = {"off": (0, 0), "hooks": (1, 0), "small": (1, 1)}


class Switch:
    def __init__(self, path):
        self.library = ctypes.PyDLL(path)  # The library's functions require the GIL, which PyDLL holds.
        self.slots = self.library.ab_find()
        self.has_small = bool(self.library.ab_find_small())
        self.header = self.find_header()
        self.numbers = (ctypes.c_uint64 * 3)()

    @staticmethod
    def find_header():
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = re.match(r"([0-9a-f]+)-.*memfd:ebb-heap", line)
                if found:
                    return ctypes.c_void_p(int(found[1], 16))
        return None  # No allocation was sampled yet, or this process does not run under ebb run.

    def set(self, side):
        self.library.ab_set(*SIDES[side])

    def cost(self):
        if self.header is None:
            return 0, 0, 0
        self.library.ab_cost(self.header, self.numbers)
        return tuple(self.numbers)


def warm_up(unit):
    """Runs UNIT until the sampling interval has settled; returns the seconds per unit."""
    begin = time.perf_counter()
    count = 0
    while count < workloads.WARM_UP_UNITS or time.perf_counter() - begin < WARM_UP_S:
        unit()
        count += 1
    begin = time.process_time()
    for _ in range(10):
        unit()
    return (time.process_time() - begin) / 10


def block(switch, side, unit, units):
    switch.set(side)
    before = switch.cost()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(units):
        unit()
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    samples, ends, hook_ns = (now - then for now, then in zip(switch.cost(), before))
    return {"side": side, "wall_ns": wall, "cpu_ns": cpu, "samples": samples, "ends": ends, "hook_ns": hook_ns}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("loop", "objects", "train"))
    parser.add_argument("--library", required=True, help="bench/heap/libab.so of the build folder")
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--report", required=True)
    arguments = parser.parse_args()
    unit = workloads.make(arguments.name)
    units = max(1, round(BLOCK_S / warm_up(unit)))
    gc.collect()
    gc.freeze()
    switch = Switch(arguments.library)
    sides = [side for side in SIDES if side != "small" or switch.has_small]
    chance = random.Random(1)
    rounds = []
    end = time.monotonic() + arguments.seconds
    while len(rounds) < arguments.rounds and time.monotonic() < end:
        chance.shuffle(sides)
        rounds.append([block(switch, side, unit, units) for side in sides])
    switch.set("small")
    with open(arguments.report, "w", encoding="ascii") as file:
        json.dump({"slots": switch.slots, "units": units, "rounds": rounds}, file)


if __name__ == "__main__":
    main()
