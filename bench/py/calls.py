#!/usr/bin/env python3
"""Measures the cost of each call of the package, in a tight loop and between pieces of real work.

    bench/py/calls.py [--times N] [--work-ms N]

Calls are measured outside a run, inside a real `ebb run`, and inside an `ebb run` without allocator figures
(EBB_TRUTH=0). Warm calls come in groups of eight, and the first of each group is ignored. A pause follows each group,
because ebb's queue holds only ten marks. Cold calls come between pieces of work that fill the caches, as a training
step does. Wall time lasts until the call returns; on a busy machine it may include the time in which ebb reads the
mark. CPU time is that of the calling thread. "nothing" is a call of an empty function, which shows the cost of the
measurement and of a cold interpreter.
"""

import argparse
import array
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
BAR_US = 10
WARM_AT_ONCE, WARM_PAUSE_S = 8, 0.002
PLACES = {"outside": {}, "in a run": {}, "in a run, EBB_TRUTH=0": {"EBB_TRUTH": "0"}}


class Work:
    """Multiplies matrices that fill the caches; without numpy, scans a large array."""

    def __init__(self, ms):
        self.seconds = ms / 1000
        try:
            import numpy

            self.matrix = numpy.random.default_rng(1).random((700, 700))
            self.piece = lambda: self.matrix @ self.matrix
        except ImportError:
            self.numbers = array.array("d", (n * 7919 % 1000003 for n in range(1 << 18)))
            self.piece = lambda: max(self.numbers)

    def __call__(self):
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            self.piece()


def calls():
    import ebb

    def phase(n):
        with ebb.phase("eval"):
            pass

    return {"nothing": lambda n: None, "step": ebb.step, "mark": lambda n: ebb.mark(loss=0.5),
            "phase, begin and end": phase,
            "checkpoint_requested": lambda n: ebb.checkpoint_requested(),
            "checkpoint_done": lambda n: ebb.checkpoint_done("checkpoint"),
            "verdict": lambda n: ebb.verdict()}


def once(call, n, clock):
    begin = clock()
    call(n)
    return (clock() - begin) / 1000


def measure(times, work_ms):
    """Returns microseconds per call: warm, cold in wall time, and cold in CPU time of the thread."""
    work, found = Work(work_ms), {}
    for name, call in calls().items():
        rows = {"warm": [], "cold": [], "cold cpu": []}
        for n in range(1, 20):
            call(n)
        for block in range(times):
            time.sleep(WARM_PAUSE_S)
            times_of_block = [once(call, n, time.perf_counter_ns) for n in range(WARM_AT_ONCE)]
            rows["warm"] += times_of_block[1:]
        for n in range(times):
            for row, clock in (("cold", time.perf_counter_ns), ("cold cpu", time.thread_time_ns)):
                work()
                rows[row].append(once(call, n, clock))
        found[name] = {row: [statistics.median(us), quantile(us, 90)] for row, us in rows.items()}
    return found


def quantile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def in_place(place, arguments, folder):
    out = os.path.join(folder, "found.json")
    command = [sys.executable, os.path.abspath(__file__), "--measure", out,
               "--times", str(arguments.times), "--work-ms", str(arguments.work_ms)]
    if place != "outside":
        ebb = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))
        command = [ebb, "run", "-q", "-d", os.path.join(folder, place), "--"] + command
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    env.update(PLACES[place])
    subprocess.run(command, env=env, check=True, cwd=folder)
    with open(out) as file:
        return json.load(file)


def show(place, found):
    print(f"{place + ', µs':32} {'warm':>8} {'p90':>8} {'cold':>9} {'p90':>8} {'CPU time':>9} {'p90':>8}")
    for name, rows in found.items():
        cells = [f"{rows[row][0]:8.2f} {rows[row][1]:8.2f}" for row in ("warm", "cold", "cold cpu")]
        over = "" if rows["warm"][0] <= BAR_US else f"  warm over {BAR_US}"
        print(f"  {name:30} {'  '.join(cells)}{over}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--work-ms", type=float, default=50)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        found = measure(arguments.times, arguments.work_ms)
        with open(arguments.measure, "w") as file:
            json.dump(found, file)
        return
    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}; "
          f"{arguments.times} cold calls of each, after {arguments.work_ms:g} ms of work")
    for place in PLACES:
        with tempfile.TemporaryDirectory() as folder:
            show(place, in_place(place, arguments, folder))


if __name__ == "__main__":
    main()
