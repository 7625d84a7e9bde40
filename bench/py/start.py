#!/usr/bin/env python3
"""Measures the time that `ebb run` adds to the start and the end of a Python program.

    bench/py/start.py [--times N] [--torch-times N] [--python PATH] [--json FILE]

Starts PATH directly, under `ebb run`, and under `ebb run` without some of its parts, in random order, for a program
that does nothing and for one that imports torch. The program reports when its first line ran and when it finished,
which divides the added time into
  start   from the fork to the first line of the program
  body    the program: nothing, or `import torch`
  end     from the last line of the program until the command has exited
Prints medians of the differences within a round, with the 95 % interval of a bootstrap over the rounds.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BAR_MS = 15
RESAMPLES = 2000
WAYS = {"plain": None, "ebb run": [], "without the profiler": ["--no-heap"], "without the shim": ["--no-shim"],
        "without both": ["--no-heap", "--no-shim"]}
PARTS = ("start", "body", "end", "all")
CODE = """import time
a = time.monotonic_ns()
{body}
b = time.monotonic_ns()
import os
os.write(1, b"%d %d" % (a, b))
"""


def once(arguments, way, body, folder):
    """Returns the milliseconds of each part."""
    ebb = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    command = [arguments.python, "-c", CODE.format(body=body)]
    if WAYS[way] is not None:
        command = [ebb, "run", "-q", "-d", tempfile.mktemp(dir=folder), *WAYS[way], "--", *command]
    begin = time.monotonic_ns()
    out = subprocess.run(command, env=env, check=True, cwd=folder, stdout=subprocess.PIPE).stdout
    end = time.monotonic_ns()
    first, last = map(int, out.split())
    return [ns / 1e6 for ns in (first - begin, last - first, end - last, end - begin)]


def interval(values):
    chance = random.Random(1)
    found = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def measure(arguments, body, times):
    chance, rounds = random.Random(1), []
    folder = tempfile.mkdtemp()
    try:
        # The first round warms the page cache and is discarded.
        once(arguments, "plain", body, folder)
        for _ in range(times):
            rounds.append({way: once(arguments, way, body, folder) for way in chance.sample(list(WAYS), len(WAYS))})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rounds


def show(body, rounds):
    plain = [statistics.median(row["plain"][i] for row in rounds) for i in range(len(PARTS))]
    print(f"python -c '{body}', ms; {len(rounds)} rounds\n  {'':22}" + "".join(f"{part:>22}" for part in PARTS))
    print(f"  {'plain':22}" + "".join(f"{ms:22.1f}" for ms in plain))
    for way in WAYS:
        if way == "plain":
            continue
        cells = []
        for i in range(len(PARTS)):
            added = [row[way][i] - row["plain"][i] for row in rounds]
            low, high = interval(added)
            cells.append(f"{statistics.median(added):+.1f} [{low:+.1f}, {high:+.1f}]")
        bar = f"   required: {BAR_MS} ms" if way == "ebb run" else ""
        print(f"  {way:22}" + "".join(f"{cell:>22}" for cell in cells) + bar, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--torch-times", type=int, default=6)
    parser.add_argument("--json", help="every time, into this file")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; bytecode is "
          f"{'not ' if sys.flags.dont_write_bytecode else ''}written")
    bodies = {"pass": arguments.times}
    if importlib.util.find_spec("torch"):
        bodies["import torch"] = arguments.torch_times
    found = {}
    for body, times in bodies.items():
        if times:
            found[body] = measure(arguments, body, times)
            show(body, found[body])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
