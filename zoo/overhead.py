#!/usr/bin/env python3
"""What `ebb run` costs each program of the zoo: CPU time under it against alone, at full speed.

    zoo/overhead.py [PROGRAM]... [--pairs N] [--lanes N] [--within S] [--json FILE] [--update]

Pairs of runs, one after the other, in turns over all programs. --lanes runs several programs side by side,
each on CPUs of its own. Twins are left out: they differ by a line. --update puts the shares into the kept
table.
"""

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))
import command as shared
import place
import table
from place import EBB, ROOT, interpreter

PAIRS = 3


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of programs; all without any")
    parser.add_argument("--pairs", type=shared.count, default=PAIRS, help="of runs, for each (%(default)s)")
    parser.add_argument("--lanes", type=shared.count, default=1, help="programs at the same time")
    parser.add_argument("--size", choices=("small", "default", "large"), default="default")
    parser.add_argument("--within", type=float, help="begin no pair after so many seconds")
    parser.add_argument("--json", type=Path, help="also write every number into this file, as they come")
    parser.add_argument("--update", action="store_true", help="put the shares into zoo/expected.json")
    return parser.parse_args()


def cost(command):
    """What a run took: CPU seconds of the program from its first step to its last, by its own clock, and of
    all processes from their start to their end. None if it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        env = dict(os.environ, ZOO_TIMES=str(times), PYTHONDONTWRITEBYTECODE="1")
        child = subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            return None
        return json.loads(times.read_text())["cpu_s"], usage.ru_utime + usage.ru_stime


def pair(python, name, size="default"):
    """(share of the steps, share of the whole) that one run under ebb took more than one alone; None if it
    cannot run."""
    program = [python, str((ZOO / name / "main.py").relative_to(ROOT)), "--size", size, "--seconds", "0"]
    alone = cost(program)
    with tempfile.TemporaryDirectory() as folder:
        watched = alone and cost([EBB, "run", "-q", "--run-dir", f"{folder}/run", "--interval",
                                  "200ms", "--", *program])
    return watched and tuple(mine / plain - 1 for mine, plain in zip(watched, alone))


def spread(shares):
    """[least, median, most], as the kept table has them."""
    return [round(value, 4) for value in (min(shares), statistics.median(shares), max(shares))]


def of_program(python, name, pairs=PAIRS):
    """The spread of the steps' shares; None if it cannot run."""
    found = [pair(python, name) for _ in range(pairs)]
    return spread([steps for steps, _ in found]) if all(found) else None


def lanes(count):
    cpus = sorted(os.sched_getaffinity(0))
    width = max(1, len(cpus) // count)
    return [set(cpus[i * width:(i + 1) * width]) or set(cpus) for i in range(count)]


def measure(names, python, args):
    """{name: [(steps, whole)]}; a program that cannot run is not in it."""
    found, failed, free, lock = {}, set(), queue.SimpleQueue(), threading.Lock()
    for lane in lanes(args.lanes):
        free.put(lane)
    began = time.monotonic()

    def take_lane():
        os.sched_setaffinity(0, free.get())  # of this thread, and of what it starts

    def one(name):
        late = args.within and time.monotonic() - began > args.within
        shares = None if late or name in failed else pair(python, name, args.size)
        with lock:
            if shares:
                found.setdefault(name, []).append(shares)
                print(f"{name}: {shares[0]:+.1%} in its steps, {shares[1]:+.1%} in all", flush=True)
            elif not late and name not in failed:
                failed.add(name)
                print(f"{name}: cannot run here", flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1))

    with ThreadPoolExecutor(args.lanes, initializer=take_lane) as pool:
        list(pool.map(one, names * args.pairs))
    return found


def update(found):
    kept = table.read()
    for name, shares in found.items():
        variant = json.loads((ZOO / name / "truth.json").read_text())["variant"]
        kept[f"{name}-{variant}"]["overhead"] = spread([steps for steps, _ in shares])
    table.keep(kept)


def main():
    import run

    args = options()
    names = place.programs(args.programs)
    place.need_ebb()
    found = measure(names, interpreter(), args)
    for name in sorted(found):
        steps, whole = (spread(side) for side in zip(*found[name]))
        print(f"{name:20} {run.overhead_text(steps):24} in all {run.overhead_text(whole):24} "
              f"of {len(found[name])}")
    if args.update:
        update(found)
    return 0 if found else 1


if __name__ == "__main__":
    shared.end_with(main, "zoo")
