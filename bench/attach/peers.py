#!/usr/bin/env python3
"""Compares ebb attach with memray attach, ebb run and no tool, on the same programs of the zoo.

    bench/attach/peers.py [--python build/bench-venv/bin/python] [--seconds 20] [--rounds 3] [NAME…]

All four variants run at the same time. Each tool attaches at step 50 and detaches at step 200 of 300. Prints for each
tool:

    survived     how often the program survived
    pause        the longest pause of a thread of the program: during attach and detach, and before the attach
    cost         additional CPU time of the process per step, in percent of the CPU time per step without a tool:
                 while attached, and after the detach; median and range of the rounds
    line         how often the leaking function is in the first three entries of the tool's report (memray: anywhere
                 in the stacks of these entries)

memray must be installed for the Python of the programs (scripts/setup.sh bench-heap)."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["dict_cache", "c_buffer", "kept_loss_graph"]
SIDES = ["none", "ebb run", "ebb attach", "memray attach"]
ATTACH_AT, DETACH_AT, STEPS, SETTLE = 50, 200, 300, 5
PATIENCE_S = 300
ROWS = 3


def lines_of(path):
    """Parses OUTPUT of steps.py: times and CPU times of the steps, and times and lengths of the pauses."""
    found = {"step": [], "pause": []}
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, *numbers = line.split()
        found[kind].append(tuple(map(float, numbers)))
    return found["step"], found["pause"]


class Side:
    """One tool, measured on one program."""

    def __init__(self, options, name, tool, folder):
        self.options, self.tool = options, tool
        self.truth = json.loads((ROOT / "zoo" / name / "truth.json").read_text())
        self.steps_file, self.run, self.capture = folder / "steps", folder / "run", folder / "memray.bin"
        self.windows, self.failed, self.attached = [], "", None
        command = [options.python, "bench/attach/steps.py", self.steps_file, f"zoo/{name}/main.py", "--seconds",
                   str(options.seconds)]
        if tool == "ebb run":
            command = [options.program, "run", "--run-dir", self.run, "--", *command]
        env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.job = subprocess.Popen(list(map(str, command)), cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)

    def wait_for_step(self, step):
        end = time.monotonic() + PATIENCE_S
        while len(lines_of(self.steps_file)[0]) < step and self.job.poll() is None and time.monotonic() < end:
            time.sleep(0.05)

    def command(self, action):
        if self.tool == "memray attach":
            output = ["-o", self.capture] if action == "attach" else []
            return [self.options.python, "-m", "memray", action, *output, str(self.job.pid)]
        output = ["--run-dir", self.run] if action == "attach" else []
        return [self.options.program, action, *output, str(self.job.pid)]

    def act(self, action):
        begun = time.monotonic()
        if action == "attach" and self.tool == "ebb attach":
            self.attached = subprocess.Popen(self.command(action), stderr=subprocess.PIPE, text=True)
            text = self.attached.stderr.readline()
            status = 0 if text.startswith("ebb: attached") else 2
            threading.Thread(target=self.attached.stderr.read, daemon=True).start()
        else:
            done = subprocess.run(self.command(action), capture_output=True, text=True, timeout=PATIENCE_S)
            status, text = done.returncode, done.stdout + done.stderr
        if status:
            self.failed = f"{action}: {(text.strip().splitlines() or ['no message'])[-1][:70]}"
        self.windows.append((begun, time.monotonic() + 0.5))

    def follow(self):
        for step, action in ((ATTACH_AT, "attach"), (DETACH_AT, "detach")):
            if self.tool.endswith("attach") and not self.failed:
                self.wait_for_step(step)
                self.act(action)
        self.status = self.job.wait(PATIENCE_S)
        if self.attached:
            self.attached.wait(PATIENCE_S)

    def cpu_per_step(self, first, last):
        cpu = [cpu for _, cpu in lines_of(self.steps_file)[0]]
        return [b - a for a, b in zip(cpu[first:last], cpu[first + 1:last])]

    def pauses_ms(self):
        """Returns the longest pause during the attach and the detach, and the longest pause before the attach, in
        ms."""
        pauses = lines_of(self.steps_file)[1]
        steps = lines_of(self.steps_file)[0]
        if not self.windows or not steps:
            return None
        during = [1e3 * length for at, length in pauses for a, b in self.windows if a < at < b + length]
        before = [1e3 * length for at, length in pauses if steps[0][0] < at < self.windows[0][0]]
        return max(during, default=0), max(before, default=0)

    def has_line(self):
        culprit = self.truth["culprit"]
        functions = {f.split(".")[-1] for f in [culprit["function"], *culprit.get("made_in", [])]}
        if self.tool == "memray attach":
            rows = subprocess.run([self.options.python, ROOT / "bench" / "peers" / "memray_rows.py", self.capture,
                                   str(ROWS)], capture_output=True, text=True)
            if rows.returncode:
                return False
            found = {f.split(".")[-1] for part in json.loads(rows.stdout) for _, stack in part for f, _ in stack}
            return bool(found & functions)
        text = subprocess.run([self.options.program, "heap", self.run, "--top", str(ROWS)], capture_output=True,
                              text=True).stdout
        return any(f in text for f in functions)


def percent_more(ours, plain):
    return 100 * (statistics.median(ours) / statistics.median(plain) - 1) if ours and plain else None


def measure(options, name, folder):
    """Runs one round. Returns (survived, pauses, cost while attached, cost after detach, whether the line was found,
    failure) for each tool."""
    sides = {}
    for tool in SIDES:
        (folder / tool).mkdir()
        sides[tool] = Side(options, name, tool, folder / tool)
    threads = [threading.Thread(target=side.follow) for side in sides.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = {}
    for tool, side in sides.items():
        costs = [percent_more(side.cpu_per_step(a + SETTLE, b), sides["none"].cpu_per_step(a + SETTLE, b))
                 for a, b in ((ATTACH_AT, DETACH_AT), (DETACH_AT, STEPS))]
        results[tool] = (side.status == 0, side.pauses_ms(), *costs, tool != "none" and side.has_line(), side.failed)
    return results


def show_cost(values):
    known = [v for v in values if v is not None]
    return f"{statistics.median(known):+.1f} [{min(known):+.1f}, {max(known):+.1f}]" if known else "–"


def show(name, tool, rounds):
    survived, pauses, attached, after, line, failed = zip(*rounds)
    count, known = len(rounds), [p for p in pauses if p]
    longest = [f"{max(p):.0f}" if max(p) else "<5" for p in zip(*known)]
    pause = f"{longest[0]} ({longest[1]})" if known else "–"
    costs = ["–", "–"] if tool == "none" else [show_cost(attached), show_cost(after)]
    print(f"{name:16} {tool:14} {sum(survived)}/{count:<7} {pause:>12}  {costs[0]:24} {costs[1]:24} "
          f"{'–' if tool == 'none' else f'{sum(line)}/{count}':5} {'; '.join(filter(None, failed))}".rstrip(),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=ROOT / "build" / "bench-venv" / "bin" / "python")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import memray"], capture_output=True).returncode:
        print("memray is not installed; run scripts/setup.sh bench-heap")
        SIDES.remove("memray attach")
    print(f"{'program':16} {'tool':14} {'survived':9} {'pause ms':>12}  {'CPU attached, %':24} "
          f"{'CPU after, %':24} line")
    for name in options.names:
        rounds = []
        for _ in range(options.rounds):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-peers-"))
            try:
                rounds.append(measure(options, name, folder))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        for tool in SIDES:
            show(name, tool, [found[tool] for found in rounds])


if __name__ == "__main__":
    sys.exit(main())
