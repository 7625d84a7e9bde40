#!/usr/bin/env python3
"""Measures the profiler and prints one table: each measurement, its result, the required value, and whether it is met.

    bench/heap/heap.py [--json] [--quick] [--only PART[,PART]] [--python PYTHON] [--build DIR]

Parts: churn, slowdown, peers, memory, truth, leak. PYTHON must have torch, numpy, pillow and, for the comparison,
memray. Parts whose packages are missing are left out, and the table says so. The exit status is 0 even if a
requirement is not met.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
# pylint: disable=wrong-import-position
from run import measure, parsed, read_text, say, start  # noqa: E402
from peers import part_peers  # noqa: E402
from truth import clean_env, part_leak, part_truth  # noqa: E402

PARTS = ("churn", "slowdown", "peers", "memory", "truth", "leak")
HERE = os.path.dirname(os.path.abspath(__file__))
NEED_TORCH = ("slowdown", "peers", "memory")
MB = 1e6
RESAMPLES = 2000
FILE_FULL = 48 << 20
PATIENCE_S = 600


def run_json(run):
    return json.loads(read_text(f"{run}/run.json"))


def under_ebb(options, name, program, **more):
    """Runs a job until it ends; returns its run folder."""
    run = f"{options.scratch}/{name}"
    subprocess.run([options.ebb, "run", "-q", "-d", run, "--", *program], check=True, timeout=PATIENCE_S,
                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**clean_env(), **more.pop("env", {})},
                   **more)
    return run


# ---- churn --------------------------------------------------------------------------------------

def part_churn(table, options):
    say("churn")
    out = f"{options.scratch}/churn.txt"
    with open(out, "w", encoding="ascii") as file:
        run = under_ebb(options, "churn", [f"{options.bench}/heap/filter", "60" if options.quick else "300"], stdout=file)
    lines = [line.split() for line in read_text(out).splitlines() if re.match(r"(pair|mix) ", line)]
    live = run_json(run)["heap"]["processes"][0]["cost"]["used"]["live"] * 32768
    table.title("Added to a pair of malloc and free, ns of CPU time (medians of turns, as preloaded, sampling)")
    for work, threads, samples, plain, passed, *_, preloaded in lines:
        what = f"{work}, {threads} thread{'s' * (threads != '1')}, {int(samples):,} live samples"
        table.bar(what, float(preloaded), 2.5 if samples == "0" else 4, "ns", digits=2,
                  note=f"of {plain}; a hook that does nothing: {passed}")
    table.row("live samples at the end, by the table itself", f"{live:,.0f}")
    return lines


# ---- slowdown -----------------------------------------------------------------------------------

def trimmed_mean(values, share=0.1):
    cut = int(len(values) * share)
    return statistics.fmean(sorted(values)[cut:len(values) - cut])


def percent(logs):
    """Returns the median of RATIOS with 95 % bounds. Both are computed from logarithms, so that noise does not bias
    them."""
    chance = random.Random(1)
    found = sorted(trimmed_mean(chance.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    return [100 * math.expm1(value)
            for value in (trimmed_mean(logs), found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)])]


def against_off(rounds, side, clock):
    logs = []
    for blocks in rounds:
        times = {block["side"]: block[clock] for block in blocks}
        if side in times:
            logs.append(math.log(times[side] / times["off"]))
    return percent(logs) if logs else None


def sampling_note(rounds, side):
    blocks = [block for blocks in rounds for block in blocks if block["side"] == side]
    seconds = sum(block["wall_ns"] for block in blocks) / 1e9
    samples, spent = (sum(block[key] for block in blocks) for key in ("samples", "hook_ns"))
    return f"{samples / seconds:.0f} samples/s of {spent / 1000 / max(samples, 1):.0f} µs"


SIDES = (("hooks", "hooks and sampling", 1), ("small", "and Python's small objects", 2))


def slowdown_rows(table, name, found):
    rounds = found["rounds"]
    block = statistics.median(b["cpu_ns"] for blocks in rounds for b in blocks) / 1e6
    for side, what, bar in SIDES:
        cpu, wall = (against_off(rounds, side, clock) for clock in ("cpu_ns", "wall_ns"))
        if cpu is None:
            table.row(f"{name}: {what}", "not switched", "the allocator of this Python is unknown")
            continue
        note = (f"[{cpu[1]:+.2f}, {cpu[2]:+.2f}]; wall time {wall[0]:+.2f} [{wall[1]:+.2f}, {wall[2]:+.2f}]; "
                f"{len(rounds)} rounds of {block:.0f} ms, {sampling_note(rounds, side)}")
        if name == "objects":
            table.row(f"{name}: {what}", f"{cpu[0]:.2f} %", note)
        else:
            table.bar(f"{name}: {what}", cpu[0], bar, "%", digits=2, note=note)


def part_slowdown(table, options):
    table.title("Slowdown, CPU time: hooks taken out and put back in one process, neighbouring blocks compared")
    results = {}
    for name, rounds in (("loop", 700), ("train", 700), ("objects", 300)):
        rounds = rounds // 7 if options.quick else rounds
        say(f"slowdown: {name}, {rounds} rounds")
        report = f"{options.scratch}/ab-{name}.json"
        under_ebb(options, f"ab-{name}", [options.python, f"{HERE}/ab.py", name, f"--rounds={rounds}", "--seconds=75",
                                          f"--library={options.bench}/heap/libab.so", f"--report={report}"],
                  env={"LD_BIND_NOW": "1"})
        results[name] = json.loads(read_text(report))
        slowdown_rows(table, name, results[name])
    return results


# ---- memory and disk ----------------------------------------------------------------------------

def most_bytes(options):
    """Returns an upper bound on the memory of the library and its table: their size if all of their pages were in
    use."""
    found = subprocess.run(["size", f"{options.build}/libebb-heap.so"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return None
    return sum(map(int, found.stdout.splitlines()[1].split()[:3])) + (6 << 20)


def watch_files(run, job):
    """Samples the size of the largest heap file until the job has ended. Returns a list of (seconds, bytes)."""
    begin, sizes = time.monotonic(), []
    while job.poll() is None and time.monotonic() - begin < PATIENCE_S:
        try:
            names = [n for n in os.listdir(run) if n.endswith(".ebbheap")]
            sizes.append((time.monotonic() - begin, max((os.path.getsize(f"{run}/{n}") for n in names), default=0)))
        except FileNotFoundError:
            pass
        time.sleep(0.5)
    return sizes


def readings_in(seconds):
    """Returns the number of snapshots in the heap history of a run of this duration: one every 2 s at first, and later
    one whenever the elapsed time has grown by 1/500 (store_interval_ns)."""
    return seconds / 2 if seconds < 1000 else 500 + 500 * math.log(seconds / 1000)


def part_memory(table, options):
    say("memory")
    run, report = f"{options.scratch}/memory", f"{options.scratch}/memory.json"
    job = start([options.ebb, "run", "-q", "-d", run, "--", options.python, f"{HERE}/workloads.py", "train", "--watch",
                 f"--units={300 if options.quick else 1200}", f"--report={report}"], env=clean_env(),
                stdin=subprocess.DEVNULL)
    sizes = watch_files(run, job)
    found = json.loads(read_text(report))["profiler_bytes"]
    table.title("Extra memory: resident pages of the library and of its table")
    table.bar("the training", found["self"] / MB, 8, "MB", digits=2,
              note=f"{most_bytes(options) / MB:.1f} MB if every page of both were used" if most_bytes(options) else "")
    for key, what in (("worker", "its DataLoader worker"), ("forked", "a forked child that sleeps"),
                      ("fresh", "a new Python that sleeps")):
        table.bar(what, found[key] / MB, 4, "MB", digits=2)
    disk_rows(table, run, sizes)
    return {"profiler_bytes": found, "sizes": sizes}


def disk_rows(table, run, sizes):
    process = max(run_json(run)["heap"]["processes"], key=lambda p: p["file_bytes"] or 0)
    sizes = [(at, size) for at, size in sizes if size]
    (begin, first), (end, last) = sizes[0], sizes[-1]
    per_reading = (last - first) / max(1, (end - begin) / 2)
    table.title("Disk: the history of the training's heap")
    table.row(f"after {end:.0f} s", f"{process['file_bytes'] / MB:.3f} MB", f"{first / MB:.3f} MB with its first reading")
    for label, length in (("an hour", 3600), ("30 days", 30 * 86400)):
        size = first + per_reading * readings_in(length)
        # Once the file is full, only the final block is still written. The final block repeats all data.
        most = FILE_FULL + max(first, per_reading)
        table.bar(f"after {label}, at the same pace", min(size, most) / MB, 64, "MB", digits=2,
                  note=f"{readings_in(length):.0f} readings of {per_reading / 1000:.2f} kB: "
                  f"{size / MB:.1f} MB if the file did not end at 48 MiB")


# ---- all parts ----------------------------------------------------------------------------------

def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--json", action="store_true", help="print everything as one JSON document")
    p.add_argument("--quick", action="store_true", help="a look in two minutes")
    p.add_argument("--only", metavar="PARTS", default=",".join(PARTS), help="some of: " + ", ".join(PARTS))
    p.add_argument("--rounds", type=int, default=2, metavar="N", help="of the peers (%(default)s)")
    p.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"), help="the build folder (%(default)s)")
    p.add_argument("--python", help="one with torch (bench-venv in the build folder)")
    options = parsed(p, argv, PARTS, "heap/filter", "make bench-heap")
    options.python = options.python or f"{options.build}/bench-venv/bin/python"
    return options


def has_torch(options):
    try:
        return subprocess.run([options.python, "-c", "import torch, numpy, PIL"], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def run_parts(table, options):
    results, torch = {}, has_torch(options)
    for part in PARTS:
        if part in options.only and part in NEED_TORCH and not torch:
            table.title(f"{part}: left out, {options.python} has no torch, numpy and pillow")
        elif part in options.only:
            results[part] = globals()[f"part_{part}"](table, options)
    return results


def main(argv):
    return measure(parse(argv), run_parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
