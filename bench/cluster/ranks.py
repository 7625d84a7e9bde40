#!/usr/bin/env python3
"""Measures the cost of ebb per rank with 8 ranks on one node, compared with one plain run.

The ranks are started as a launcher does, with torchrun's variables, so neither Slurm nor torch is required. All ranks
do the same work at the same pace. Runs with and without ebb alternate; a cost is the median CPU time over the rounds.
The exit status is 1 if a cost is higher than required."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RANKS, STEPS, FIRST = 8, 250, 20  # the first steps are not measured
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT",
         "TORCHELASTIC_RUN_ID")
SHARE_MAX = 1.1  # highest allowed cost per rank, as a multiple of the cost of one run

# Prints the CPU time of the steps in seconds. 8 ranks together use less than one core.
PROGRAM = """
import sys, time
try:
    import ebb
except ImportError:
    ebb = None
steps, first = int(sys.argv[1]), int(sys.argv[2])
kept = []
def work(step):
    global kept
    kept = [bytearray(n % 64 * 512 + 64) for n in range(300)]
    if ebb:
        ebb.step(step)
for step in range(first):
    work(step)
began, due = time.process_time(), time.monotonic()
for step in range(first, steps):
    work(step)
    due += 0.02
    time.sleep(max(0, due - time.monotonic()))
print(time.process_time() - began)
"""


def environment(rank=None, name=""):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("EBB_", "SLURM_")) and k not in NAMES}
    if rank is not None:
        values = (rank, rank, RANKS, RANKS, 0, 1, 1, name)
        env.update(zip(NAMES, map(str, values)))
    return env


def run(command, count, folder, name):
    """Runs COUNT ranks at the same time, or one program without a launcher. Returns the mean CPU time of a rank's
    steps."""
    children = [subprocess.Popen(command, cwd=folder, env=environment(n if count > 1 else None, name), text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for n in range(count)]
    outputs = [child.communicate()[0] for child in children]
    assert not any(child.returncode for child in children), outputs
    return statistics.mean(float(text) for text in outputs)


def supervisors(folder):
    """Returns the number of supervisors that wrote a recording below FOLDER, and their total CPU time."""
    docs = [json.loads(path.read_text()) for path in folder.glob("ebb-runs/**/run.json")
            if "latest" not in path.parts]
    return len(docs), sum(d["cost"]["cpu_s"] for d in docs)


def measure(ebb, work, count, number):
    """Returns the CPU time per rank that the hooks and the profiler add, the CPU time per rank of the supervisors, and
    the number of supervisors."""
    program = [sys.executable, "-c", PROGRAM, str(STEPS), str(FIRST)]
    folder = work / f"{count}-{number}"
    folder.mkdir()
    bare = run(program, count, folder, "bare")
    under = run([ebb, "run", "-q", "--", *program], count, folder, f"bench-{os.getpid()}-{number}")
    found, cpu_s = supervisors(folder)
    return (under - bare) / (STEPS - FIRST), cpu_s / count / STEPS, found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="number of rounds (default: 4)")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("EBB_BUILD_DIR", "build")).resolve()
    ebb = os.environ.get("EBB_BINARY", build / "ebb")
    rounds = {1: [], RANKS: []}
    with tempfile.TemporaryDirectory() as work:
        for number in range(options.rounds):
            for count in rounds if number % 2 else reversed(rounds):
                rounds[count].append(measure(ebb, pathlib.Path(work), count, number))
    costs = {}
    print(f"CPU time per rank and step, {STEPS} steps of 20 ms, {options.rounds} rounds")
    for count, rows in rounds.items():
        inside, outside = (1e6 * statistics.median(row[i] for row in rows) for i in (0, 1))
        costs[count] = inside + outside
        print(f"{'one run' if count == 1 else f'{count} ranks'}: {inside:.0f} µs in the rank, {outside:.0f} µs in the "
              f"supervisor, {costs[count]:.0f} µs together")
    share, found = costs[RANKS] / costs[1], max(row[2] for row in rounds[RANKS])
    print(f"cost per rank: {share:.2f} of one run (required: {SHARE_MAX})")
    print(f"supervisors for {RANKS} ranks: {found} (required: 1)")
    return int(share > SHARE_MAX or found != 1)


if __name__ == "__main__":
    sys.exit(main())
