#!/usr/bin/env python3
"""Measures how common remedies for memory growth change the memory and the speed of examples/seed_case.py.

    zoo/costs.py [--rounds 5] [--lanes 1] [--python PYTHON] [-- options of seed_case.py]

Each remedy runs in its own process. The remedies alternate within each round, so that other load of the machine
affects all of them. With --lanes, each lane runs separate rounds on its own CPUs. Prints three numbers per remedy. The
first is the time of a step relative to the plain training: the median of the rounds' ratios, and their range. The first
two steps are left out, because they load and compile. The second is the peak memory of all processes of the training
(PSS). The third is the growth from the end of the second step to this peak.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import place

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(HERE), "examples")
MIB = 1 << 20

WAYS = {
    "plain": {},
    "clean-up every step": {"every": 1},
    "clean-up every 5 steps": {"every": 5},
    "clean-up every 10 steps": {"every": 10},
    "clean-up every 20 steps": {"every": 20},
    "zero_grad(set_to_none=False)": {"keep_gradients": True},
    "4 workers": {"workers": 4},
    "decoded when needed": {"fixed": True},
}


def tree_pss():
    """Returns the memory of this process and its children. A page shared by several processes is included once."""
    pids = [os.getpid()]
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as children:
            pids += [int(pid) for pid in children.read().split()]
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
                total += next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        except OSError:  # the process has just exited
            continue
    return total


def train(way, arguments):
    """Runs one training in this process; prints its measurements as one line of JSON."""
    sys.path.insert(0, EXAMPLES)
    sys.argv = ["seed_case.py", *arguments, *(["--fixed"] if way.get("fixed") else [])]
    import seed_case
    import torch
    from transformers import TrainerCallback

    class Meter(TrainerCallback):
        def on_train_begin(self, *_, **__):
            self.first, self.most = 0, 0

        def on_step_end(self, args, state, control, model=None, **_):
            if state.global_step == 2:
                self.first = tree_pss()
                self.began = time.monotonic()
            if state.global_step % 8 == 0 or state.global_step == state.max_steps:
                self.most = max(self.most, tree_pss())
            every = way.get("every")
            if every and state.global_step % every == 0:
                model.zero_grad(set_to_none=True)
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()

        def on_train_end(self, args, state, control, **_):
            took = (time.monotonic() - self.began) / (state.global_step - 2)
            print(json.dumps({"step_s": took, "first": self.first, "most": self.most}), flush=True)

    class Changed(seed_case.Paced):
        def __init__(self, model=None, args=None, **keys):
            args.dataloader_num_workers = way.get("workers", 0)
            if way.get("keep_gradients"):
                plain = model.zero_grad
                model.zero_grad = lambda set_to_none=True: plain(set_to_none=False)
            super().__init__(model=model, args=args, callbacks=[Meter()], **keys)

    seed_case.Paced = Changed
    seed_case.main()


def measure(name, options, cpus):
    command = [options.python, os.path.abspath(__file__), "--one", name, "--", *options.rest]
    print(f"costs: {name}", file=sys.stderr)
    out = subprocess.run(["taskset", "-c", ",".join(map(str, cpus)), *command], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    if out.returncode:
        sys.exit(f"costs: {name}: {out.stderr.strip().splitlines()[-1]}")
    return json.loads(next(line for line in reversed(out.stdout.splitlines()) if line.startswith('{"step_s"')))


def lane(options, number):
    """Returns the measurements of one lane: for each round, {remedy: measurements}."""
    cpus = sorted(os.sched_getaffinity(0))[number :: options.lanes]
    return [{name: measure(name, options, cpus) for name in WAYS} for _ in range(options.rounds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=1, help="number of concurrent rounds, each on its own CPUs")
    parser.add_argument("--python", default=place.interpreter())
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help="options of seed_case.py, behind --")
    options = parser.parse_args()
    if options.one:
        train(WAYS[options.one], options.rest)
        return
    with ThreadPoolExecutor(options.lanes) as pool:
        rounds = [a for b in pool.map(lambda n: lane(options, n), range(options.lanes)) for a in b]
    print(f"{len(rounds)} rounds, {statistics.median(r['plain']['step_s'] for r in rounds) * 1e3:.0f} ms a plain step")
    print("| way | time | range of rounds | memory at most | growth |\n|---|---|---|---|---|")
    for name in WAYS:
        runs = [a[name] for a in rounds]
        ratios = [a[name]["step_s"] / a["plain"]["step_s"] for a in rounds]
        most = statistics.median(run["most"] for run in runs) / MIB
        growth = statistics.median(run["most"] - run["first"] for run in runs) / MIB
        print(f"| {name} | {statistics.median(ratios):.3f} × | {min(ratios):.3f}–{max(ratios):.3f} "
              f"| {most:,.0f} MiB | {growth:+,.0f} MiB |")


if __name__ == "__main__":
    main()
