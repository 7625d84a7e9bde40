#!/usr/bin/env python3
"""Measures the cost of ebb in a training step: of marks, hooks and profiler, each with an upper bound.

    bench/py/cost.py [--quick] [--loop plain,hf,lightning] [--ms 2,5,10,25,100] [--costs all] [--minutes N] [--json
FILE]

Each loop trains in one process under a real `ebb run`, with four loader workers, on the GPU if there is one. Matrix
products extend steps to each of the lengths in --ms. Between blocks of about 0.1 s, in random order, parts of ebb are
removed from the running process and restored (cost_job.py):

  profiler   libebb-heap.so: every hook on malloc, mmap and Python's allocator, and the sampling
  marks      plain: calls of ebb.step; hf, lightning: the callback that the shim adds
  hooks      the shim's hooks in optimizers and loaders; plain: they also report the steps
  all        all three, as in normal use
  outside    the supervisor, which samples the job; SIGSTOP stops the supervisor for the comparison

--costs measures only some of these parts, with more rounds for each. No part costs more than "all", so the upper bound
of "all" is also an upper bound of each part.

The cost is the mean of the differences within rounds. Its 95 % interval comes from a bootstrap over the rounds, and the
upper bound is the upper end of that interval. The supervisor runs during both kinds of blocks, so its use of cores and
memory bandwidth is not included. The start and the end of the job are not included either (start.py measures them). """

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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESAMPLES = 2000
NOISE_BARS = 3
PATIENCE_S = 150
START_S = 25  # Seconds needed to warm up a training loop.
# Each cost is the difference between the two named arms.
COSTS = {"profiler": ("profiler", "nothing"), "marks": ("marks", "profiler"), "hooks": ("hooks", "profiler"),
         "all": ("all", "nothing"), "outside": ("nothing", "unwatched")}
BARS = {"profiler", "marks", "hooks", "all"}
PACKAGES = {"plain": ("torch",), "hf": ("torch", "transformers", "accelerate"),
            "lightning": ("torch", "lightning|pytorch_lightning")}


def bar_percent(step_ms):
    return 1.0 if step_ms >= 9 else 2.0


def missing(loop):
    for names in PACKAGES[loop]:
        if not any(importlib.util.find_spec(name) for name in names.split("|")):
            return names.split("|")[0]
    return None


def arms_of(costs):
    """Returns the arms needed for COSTS. Their order is the same as in cost_job.py, so that a seed produces the same
    random choices."""
    needed = {arm for what in costs for arm in COSTS[what]}
    return [arm for arm in ("nothing", "profiler", "marks", "hooks", "all", "unwatched") if arm in needed]


# ---- measuring ----


def run_loop(loop, arguments, seconds, binds_now=True):
    """Runs cost_job.py. GOT slots that are not bound yet cannot be switched; if a library does not load with
    LD_BIND_NOW, only the slots bound during warm-up are switched."""
    ebb = pathlib.Path(os.environ.get("EBB_BINARY", ROOT / "build" / "ebb")).resolve()
    library = ebb.parent / "bench" / "heap" / "libab.so"
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    env.update({"LD_BIND_NOW": "1"} if binds_now else {}, OMP_NUM_THREADS=env.get("OMP_NUM_THREADS", "1"))
    folder, begin = tempfile.mkdtemp(), time.monotonic()
    try:
        report, log = os.path.join(folder, "found.json"), os.path.join(folder, "log")
        with open(log, "w") as out:
            job = subprocess.Popen(
                [ebb, "run", "-q", "-d", f"{folder}/run", "--", sys.executable, HERE / "cost_job.py", loop,
                 "--ms", ",".join(map(str, arguments.ms)), "--arms", ",".join(arms_of(arguments.costs)),
                 "--seconds", str(seconds), "--library", library,
                 "--folder", f"{folder}/out", "--report", report],
                env=env, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
            try:
                status = job.wait(seconds * len(arguments.ms) + PATIENCE_S)
            except subprocess.TimeoutExpired:
                job.terminate()  # A terminated `ebb run` also ends its job.
                status = job.wait()
        if status or not os.path.exists(report):
            tail = pathlib.Path(log).read_text(errors="replace").splitlines()[-12:]
            print("\n".join([f"{loop}: exited with status {status}:", *tail]), flush=True)
            if binds_now and time.monotonic() - begin < START_S:
                return run_loop(loop, arguments, seconds, binds_now=False)
            return None
        found = json.loads(pathlib.Path(report).read_text())
        found["run"] = json.loads(pathlib.Path(folder, "run", "run.json").read_text())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- evaluation ----


def means(row, column):
    """Returns the mean of COLUMN for each arm of a round."""
    by_arm = {}
    for block in row:
        by_arm.setdefault(block["arm"], []).append(block[column])
    return {arm: statistics.fmean(values) for arm, values in by_arm.items()}


def trimmed(values):
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut:len(values) - cut])


def interval(values, statistic):
    chance = random.Random(1)
    found = sorted(statistic(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def cost_of(rounds, what, base_us):
    """Returns the cost as a percentage of a step (mean, interval, trimmed mean and its upper bound), and the CPU time
    of the process."""
    arm, base = COSTS[what]
    rows = [means(row, "wall_us") for row in rounds]
    cpu = [means(row, "cpu_us") for row in rounds]
    percent = [100 * (row[arm] - row[base]) / base_us for row in rows]
    cpu_us = [row[arm] - row[base] for row in cpu]
    low, high = interval(percent, statistics.fmean)
    return {"percent": statistics.fmean(percent), "low": low, "high": high,
            "trimmed": trimmed(percent), "trimmed_high": interval(percent, trimmed)[1],
            "cpu_us": trimmed(cpu_us), "cpu_high_us": interval(cpu_us, trimmed)[1]}


def word(cost, bar):
    """Rates a cost against the allowed cost BAR. The result is "too noisy" if the interval is much wider than BAR."""
    if cost["low"] > bar:
        return "MISSED"
    if cost["high"] - cost["low"] > NOISE_BARS * bar:
        return "too noisy"
    return "held" if cost["high"] <= bar else "open"


def sampling_of(rounds, base_us):
    """Returns, for the blocks with the profiler on: samples per second, the percentage of a step spent on sampling, and
    the part of that percentage that normal use would not have. The profiler has a sampling budget per second of wall
    time. It is assumed to spend the budget saved while it is off as soon as it is on."""
    blocks = [block for row in rounds for block in row]
    on = [block for block in blocks if block["arm"] in ("profiler", "marks", "hooks", "all")]
    on_s, all_s = (sum(block["wall_s"] for block in some) for some in (on, blocks))
    if not on:
        return 0.0, 0.0, 0.0
    percent = 100 * statistics.fmean(block["hook_us"] for block in on) / base_us
    return sum(block["samples"] for block in on) / on_s, percent, percent * (1 - on_s / all_s)


def show(loop, target):
    rounds = target["rounds"]
    known = {block["arm"] for block in rounds[0]}
    base = "nothing" if "nothing" in known else "profiler"
    base_us = statistics.median(means(row, "wall_us")[base] for row in rounds)
    spread = 100 * statistics.pstdev([means(row, "wall_us")[base] / base_us for row in rounds])
    rate, sampling, surplus = sampling_of(rounds, base_us)
    bar = bar_percent(base_us / 1e3)
    print(f"{loop}, {target['target_ms']:g} ms: a step takes {base_us / 1e3:.2f} ms without ebb; {len(rounds)} rounds of "
          f"{target['steps']} steps, ±{spread:.1f} % between rounds; {rate:.0f} samples/s take {sampling:.2f} % of a step", flush=True)
    costs = {}
    for what in COSTS:
        if not known.issuperset(COSTS[what]):
            continue
        c = costs[what] = cost_of(rounds, what, base_us)
        verdict = f"required: {bar:g} %, {word(c, bar)}" if what in BARS else ""
        print(f"    {what:9} at most {c['high']:+6.2f} %   {verdict:18} mean {c['percent']:+6.2f} % [{c['low']:+.2f}, "
              f"{c['high']:+.2f}]   trimmed {c['trimmed']:+6.2f} %, at most {c['trimmed_high']:+.2f}   "
              f"{10 * c['trimmed'] * base_us / 1e3:+7.1f} µs; CPU time {c['cpu_us']:+7.1f}, at most {c['cpu_high_us']:+.1f} µs", flush=True)
        if what in ("profiler", "all"):
            print(f"              at most {c['high'] - surplus:+6.2f} % with as many samples as in use")
    return {"loop": loop, "target_ms": target["target_ms"], "step_ms": base_us / 1e3, "bar": bar,
            "samples_per_s": rate, "sampling": sampling, "surplus": surplus, "costs": costs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", default="plain,hf,lightning")
    parser.add_argument("--ms", default="2,5,10,25,100", help="lengths of a step")
    parser.add_argument("--costs", default=",".join(COSTS), help="which of them")
    parser.add_argument("--minutes", type=float, default=7.5, help="for all loops together")
    parser.add_argument("--quick", action="store_true", help="plain and hf at 2, 10 and 25 ms, two minutes")
    parser.add_argument("--json", help="every block, into this file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.loop, arguments.ms, arguments.minutes = "plain,hf", "2,10,25", 2
    arguments.costs = arguments.costs.split(",")
    if not set(arguments.costs) <= set(COSTS):
        parser.error(f"--costs takes some of {','.join(COSTS)}")
    arguments.ms = [float(ms) for ms in arguments.ms.split(",")]
    loops = []
    for loop in arguments.loop.split(","):
        if missing(loop):
            print(f"{loop}: skipped, {missing(loop)} is not installed")
        else:
            loops.append(loop)
    if not loops:
        return
    seconds = max(2.0, (60 * arguments.minutes / len(loops) - START_S) / len(arguments.ms))
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}; "
          f"{seconds:.0f} s for each length of a step", flush=True)
    everything = {}
    for loop in loops:
        found = run_loop(loop, arguments, seconds)
        if not found:
            continue
        everything[loop] = found
        notes = [] if found["has_small"] else ["Python's small objects stay hooked on both sides"]
        notes += [] if found["is_watched_by_parent"] else ["the supervisor is not the parent: \"outside\" says nothing"]
        print(f"\n{loop}: {found['device']}, torch {found['torch']}, {found['slots']} slots switched; the supervisor takes "
              f"{found['run'].get('cost', {}).get('cpu_permyriad', 0) / 100:.2f} % of one CPU{''.join('; ' + n for n in notes)}")
        found["summary"] = [show(loop, target) for target in found["targets"]]
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(everything))
    rows = [row for found in everything.values() for row in found["summary"]]
    words = [word(row["costs"][what], row["bar"]) for row in rows for what in row["costs"] if what in BARS]
    print(f"\n{words.count('held')} of {len(words)} upper bounds are within their requirement")


if __name__ == "__main__":
    main()
