#!/usr/bin/env python3
"""Compares the program of the wheel (built with zig) with that of `make` (gcc): cost, start-up and size.

    bench/wheels.py [--json] [--only PART[,PART]] [--rounds N] [--build DIR]

Parts: tick, churn, start, size, hooks. Each round measures both builds, in alternating order. The ratio is the median
over the rounds, so that a busy machine affects both builds alike. Times are CPU time.

The part `churn` shows the time of a pair of malloc and free with the library, divided by the time without the library
in the same process, and also the added time in nanoseconds. The added times of the two builds are not compared: they
can be close to zero, because the processor executes the hooks while it waits for the allocator. The part `hooks`
therefore counts the instructions of the hooks.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import measure, parsed, say  # noqa: E402

PARTS = ("tick", "churn", "start", "size", "hooks")
RATIO_MAX = 1.1
SIDES = ("gcc", "wheel")
CHURN, ADDED = "churn: slowdown of a ", "added to a "


def clean_env():
    return {key: value for key, value in os.environ.items() if not key.startswith(("EBB_", "LD_"))}


def cpu_ms_of(command):
    """Returns the CPU milliseconds of a command and of all child processes that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=clean_env(), stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measure_tick(_options, tree):
    found = json.loads(subprocess.check_output([f"{tree}/bench/tick", "21", "2000"], text=True))
    return {"tick of 21 processes, µs": found["tick_us"], "walk of 21 processes, µs": found["walk_us"]}


def measure_churn(options, tree):
    """Measures a pair of malloc and free, with and without the library's hooks in the same process."""
    run = f"{options.scratch}/churn"
    shutil.rmtree(run, ignore_errors=True)
    text = subprocess.run([f"{tree}/ebb", "run", "-q", "-d", run, "--", f"{options.bench}/heap/filter", "200"],
                          check=True, env=clean_env(), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("pair", "mix"):
            work, threads, samples, plain, *_, added = words
            if threads == "1":
                what = f"{work}, {int(samples):,} live samples"
                found[f"{CHURN}{what}"] = 1 + float(added) / float(plain)
                found[f"{ADDED}{what}, ns"] = float(added)
    return found


def measure_start(options, tree):
    run = f"{options.scratch}/start"
    commands = {"ebb version, ms": [f"{tree}/ebb", "version"],
                "ebb run -- true, ms": [f"{tree}/ebb", "run", "-q", "-d", run, "--", "true"]}
    found = {what: [] for what in commands}
    for _ in range(20):
        shutil.rmtree(run, ignore_errors=True)
        for what, command in commands.items():
            found[what].append(cpu_ms_of(command))
    return {what: statistics.median(values) for what, values in found.items()}


def stripped_bytes(options, path):
    copy = f"{options.scratch}/stripped"
    subprocess.run(["strip", "-o", copy, path], check=True)
    return os.path.getsize(copy)


def instructions_to_allocator(library, name):
    """Returns the number of instructions of a hook from its start to its jump to the allocator. The branches before
    that jump are taken only when a sample is due."""
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True)
    start = int(re.search(rf"^([0-9a-f]+) T {name}$", symbols, re.M).group(1), 16)
    text = subprocess.check_output(["objdump", "-d", "--no-show-raw-insn", f"--start-address={start}",
                                    f"--stop-address={start + 400}", library], text=True)
    words = re.findall(r"^ +[0-9a-f]+:\t(\S+)", text, re.M)
    return next(n for n, word in enumerate(words, 1) if word in ("jmp", "br"))


def run_parts(table, options):
    rounds = []
    for n in range(options.rounds):
        say(f"round {n + 1} of {options.rounds}")
        found = {}
        for side in SIDES if n % 2 else reversed(SIDES):
            found[side] = {}
            for part, take in (("tick", measure_tick), ("churn", measure_churn), ("start", measure_start)):
                if part in options.only:
                    found[side].update(take(options, options.trees[side]))
        rounds.append(found)
    table.title(f"The wheel's program divided by gcc's: medians of {options.rounds} rounds")
    for what in rounds[0]["gcc"]:
        values = {side: statistics.median(r[side][what] for r in rounds) for side in SIDES}
        if what.startswith(ADDED):
            differences = sorted(r["wheel"][what] - r["gcc"][what] for r in rounds)
            table.row(what, f"{statistics.median(differences):+.2f}", f"{values['wheel']:.2f} of {values['gcc']:.2f}; "
                      f"rounds {differences[0]:+.2f} to {differences[-1]:+.2f}")
            continue
        ratios = sorted(r["wheel"][what] / r["gcc"][what] for r in rounds)
        table.bar(what, statistics.median(ratios), RATIO_MAX, "", digits=3,
                  note=f"{values['wheel']:.2f} of {values['gcc']:.2f}; rounds {ratios[0]:.2f} to {ratios[-1]:.2f}")
    for name in ("ebb", "libebb-heap.so") if "size" in options.only else ():
        sizes = {side: stripped_bytes(options, f"{options.trees[side]}/{name}") for side in SIDES}
        table.bar(f"{name}, stripped, MB", sizes["wheel"] / sizes["gcc"], RATIO_MAX, "", digits=3,
                  note=f"{sizes['wheel'] / 1e6:.2f} of {sizes['gcc'] / 1e6:.2f}")
    for name in ("malloc", "free") if "hooks" in options.only else ():
        counts = {side: instructions_to_allocator(f"{options.trees[side]}/libebb-heap.so", name) for side in SIDES}
        table.bar(f"hook of {name}, instructions", counts["wheel"] / counts["gcc"], RATIO_MAX, "", digits=3,
                  note=f"{counts['wheel']} of {counts['gcc']}")
    return rounds


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--json", action="store_true", help="print everything as one JSON document")
    p.add_argument("--only", metavar="PARTS", default=",".join(PARTS), help="some of: " + ", ".join(PARTS))
    p.add_argument("--rounds", type=int, default=15, metavar="N", help="(%(default)s)")
    p.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"), help="the build folder (%(default)s)")
    options = parsed(p, argv, PARTS, "heap/filter", "make bench-wheels")
    options.trees = {"gcc": options.build, "wheel": f"{options.build}/release/{platform.machine()}-linux-gnu.2.17/tree"}
    for tree in options.trees.values():
        if not os.path.exists(f"{tree}/bench/tick"):
            raise SystemExit(f"bench: {tree}/bench/tick is missing; make bench-wheels builds it")
    return options


if __name__ == "__main__":
    sys.exit(measure(parse(sys.argv[1:]), run_parts))
