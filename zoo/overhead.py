#!/usr/bin/env python3
"""Measures the cost of `ebb run` for each program of the zoo: compares the CPU time with and without ebb, at full
speed.

    zoo/overhead.py [PROGRAM]... [--pairs N] [--lanes N] [--within S] [--json FILE] [--update]

The two runs of a pair follow each other, and pairs alternate between all programs. --lanes runs several programs at a
time, each on its own CPUs. Only the first variant of each program is run, because the second differs by only one
line. At the end, two costs over all programs are printed. The first is the running cost, as a share of the CPU time of
all steps except the longest ones. The second is the cost per run, which does not depend on the length of the run: its
start, its end, and scans that are made only a few times. --update writes the cost of each program's steps, including
the longest steps, to the table of expected results.
"""

import argparse
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))
import command as shared
import place
import table
from place import EBB, ROOT, interpreter

PAIRS = 3
EMPTY_RUNS = 9
# fraction of the steps that are typical; the rest are the longest steps, which include work done only a few times per
# run
USUAL = 0.95
DRAWS = 2000
NO_STEPS = {"cpu_s": [0.0, 0.0], "wall_s": 0.0}
# The printed values of a pair of runs (with and without ebb), with their formats.
PARTS = {"running": ("running: the steps, and ebb's own processes meanwhile", "{:+.1%}"),
         "usual": ("of it in the job", "{:+.1%}"),
         "once_s": ("once a run", "{:+.2f} s"),
         "before_s": ("of it in the job before its first step", "{:+.2f} s"),
         "steps": ("all steps of the job", "{:+.1%}"),
         "all": ("all processes from start to end", "{:+.1%}")}


class Cost(NamedTuple):
    """CPU times and wall times of one run, in seconds."""

    all_s: float  # CPU time of all processes
    before_s: float  # CPU time of the program before its first step
    steps_s: float  # CPU time of the program from the first to the last step
    usual_s: float  # CPU time of all steps except the longest ones
    own_s: float  # CPU time of the supervisor; 0 without ebb
    wall_s: float
    steps_wall_s: float


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--pairs", type=shared.count, default=PAIRS, help="pairs of runs per program (%(default)s)")
    parser.add_argument("--lanes", type=shared.count, default=1, help="number of programs that run at the same time")
    parser.add_argument("--size", choices=("small", "default", "large"), default="default")
    parser.add_argument("--within", type=float, help="seconds after which no further pair of runs begins")
    parser.add_argument("--json", type=Path, help="also write each measured value to this file at once")
    parser.add_argument("--update", action="store_true", help="write the cost of each program to zoo/expected.json")
    return parser.parse_args()


def cost(command, run_dir=None):
    """Returns the Cost of a run, or None if the program cannot run. RUN_DIR is its run folder, or None without ebb."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        env = dict(os.environ, ZOO_TIMES=str(times), PYTHONDONTWRITEBYTECODE="1")
        began = time.monotonic()
        child = subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            return None
        own = json.loads((run_dir / "run.json").read_text())["cost"]["cpu_s"] if run_dir else 0
        said = json.loads(times.read_text()) if times.exists() else NO_STEPS
        cpu = said["cpu_s"]
        steps = sorted(after - before for before, after in zip(cpu, cpu[1:]))
        usual = steps[:int(USUAL * len(steps))]
        return Cost(usage.ru_utime + usage.ru_stime, cpu[0], sum(steps), sum(usual), own,
                    time.monotonic() - began, said["wall_s"])


def cost_watched(job):
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        return cost([EBB, "run", "-q", "--run-dir", str(run_dir), "--", *job], run_dir)


def empty_s():
    """Returns the supervisor's CPU time for a job that exits at once, which is the cost of its start and end."""
    return statistics.median(cost_watched(["true"]).own_s for _ in range(EMPTY_RUNS))


def parts(watched, alone, start_and_end_s):
    """Returns the cost that ebb adds to a run, as shares and in seconds. CPU time of the job's processes other than
    its first one is part of the start-up cost."""
    meanwhile_s = max(0.0, watched.own_s - start_and_end_s) * watched.steps_wall_s / watched.wall_s
    usual = watched.usual_s / alone.usual_s - 1
    running = usual + meanwhile_s / alone.steps_s
    return {"running": running,
            "usual": usual,
            "once_s": watched.all_s - alone.all_s - running * alone.steps_s,
            "before_s": watched.before_s - alone.before_s,
            "steps": watched.steps_s / alone.steps_s - 1,
            "all": watched.all_s / alone.all_s - 1}


def pair(python, name, start_and_end_s=0.0, size="default"):
    """Runs the program with and without ebb. Returns the values of this pair of runs, or None if the program cannot
    run."""
    program = [python, str((ZOO / name / "main.py").relative_to(ROOT)), "--size", size, "--seconds", "0"]
    alone = cost(program)
    watched = alone and cost_watched(program)
    return watched and parts(watched, alone, start_and_end_s)


def spread(shares):
    """Returns [minimum, median, maximum], as in the table of expected results."""
    return [round(value, 4) for value in (min(shares), statistics.median(shares), max(shares))]


def of_program(python, name, pairs=PAIRS):
    """Returns minimum, median and maximum of the cost relative to the steps' CPU time, or None if the program cannot
    run."""
    found = [pair(python, name) for _ in range(pairs)]
    return spread([one["steps"] for one in found]) if all(found) else None


def interval(found, part):
    """Returns the 95 % confidence interval of the median over all programs. The bootstrap resamples the programs and,
    for each, its pairs of runs."""
    rng, names = random.Random(0), sorted(found)
    values = {name: [one[part] for one in found[name]] for name in names}
    medians = sorted(
        statistics.median(statistics.median(rng.choices(values[name], k=len(values[name])))
                          for name in rng.choices(names, k=len(names)))
        for _ in range(DRAWS))
    return medians[int(0.025 * DRAWS)], medians[int(0.975 * DRAWS)]


def summary(found):
    """Returns the lines of a table: for each value, the median over all programs and its confidence interval."""
    lines = [f"| | median of the {len(found)} programs | 95 % of the median | half of them |",
             "|---|---|---|---|"]
    for part, (title, form) in PARTS.items():
        each = [statistics.median(one[part] for one in pairs) for pairs in found.values()]
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        cells = [form.format(statistics.median(each)),
                 " to ".join(form.format(value) for value in interval(found, part)),
                 f"{form.format(low)} to {form.format(high)}"]
        lines.append("| " + " | ".join([title, *cells]) + " |")
    return lines


def lanes(count):
    cpus = sorted(os.sched_getaffinity(0))
    width = max(1, len(cpus) // count)
    return [set(cpus[i * width:(i + 1) * width]) or set(cpus) for i in range(count)]


def measure(names, python, args):
    """Returns {name: [values of each pair of runs]}, without programs that cannot run."""
    found, failed, free, lock = {}, set(), queue.SimpleQueue(), threading.Lock()
    for lane in lanes(args.lanes):
        free.put(lane)
    began, start_and_end_s = time.monotonic(), empty_s()

    def take_lane():
        os.sched_setaffinity(0, free.get())  # This thread and its children get CPUs of their own.

    def one(name):
        late = args.within and time.monotonic() - began > args.within
        took = None if late or name in failed else pair(python, name, start_and_end_s, args.size)
        with lock:
            if took:
                found.setdefault(name, []).append(took)
                print(f"{name}: {took['running']:+.1%} running, {took['once_s']:+.2f} s once, "
                      f"{took['all']:+.1%} in all", flush=True)
            elif not late and name not in failed:
                failed.add(name)
                print(f"{name}: cannot run here", flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1))

    with ThreadPoolExecutor(args.lanes, initializer=take_lane) as pool:
        list(pool.map(one, names * args.pairs))
    return found


def update(found, path=table.KEPT):
    kept = table.read(path)
    for name, pairs in found.items():
        variant = json.loads((ZOO / name / "truth.json").read_text())["variant"]
        kept[f"{name}-{variant}"]["overhead"] = spread([one["steps"] for one in pairs])
    table.keep(kept, path)


def main():
    import run

    args = options()
    names = place.programs(args.programs)
    place.need_ebb()
    found = measure(names, interpreter(), args)
    for name in sorted(found):
        texts = [f"{part} {run.overhead_text(spread([one[part] for one in found[name]])):18}"
                 for part in ("running", "steps", "all")]
        print(f"{name:20}", *texts, f"of {len(found[name])}")
    if found:
        print("", *summary(found), sep="\n")
    if args.update:
        update(found)
    return 0 if found else 1


if __name__ == "__main__":
    shared.end_with(main, "zoo")
