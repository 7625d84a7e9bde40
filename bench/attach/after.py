#!/usr/bin/env python3
"""Measures what an attach and detach leave in the cost of a program.

    bench/attach/after.py [--python build/venv/bin/python] [--rounds 400]

Starts two equal programs, which take turns on one core; a turn takes about 20 ms of CPU time. ebb attaches to the
second program and detaches. Prints how the ratio of their CPU times has changed by that, with a 95 % interval. The
ratio before the attach corrects for the different addresses of the two programs, and taking turns corrects for other
work on the machine. The ratio of two programs of which neither was attached to is the control."""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP, DRAWS = 50, 2000

PROGRAM = """
import sys, time
kind = sys.argv[1]
if kind == "torch":
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(256, 32), torch.randint(0, 4, (256,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16)

    def turn():
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
else:
    def turn():
        kept = {}
        for i in range(24000):
            kept[i % 500] = [str(i), bytearray(i % 3000)]
for line in sys.stdin:
    begun = time.process_time_ns()
    turn()
    print(time.process_time_ns() - begun, flush=True)
"""


class Program:
    def __init__(self, python, kind, core):
        self.process = subprocess.Popen([python, "-c", PROGRAM, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def ratios(first, second, rounds):
    found = []
    for i in range(rounds):
        pair = [p.turn() for p in ((first, second) if i % 2 else (second, first))]
        a, b = pair if i % 2 else pair[::-1]
        found.append(b / a)
    return found


def change_percent(before, after):
    """Returns the change of the median ratio in percent, and its 95 % interval by resampling."""
    source = random.Random(1)
    draws = sorted(statistics.median(source.choices(after, k=len(after)))
                   / statistics.median(source.choices(before, k=len(before))) for _ in range(DRAWS))
    values = [statistics.median(after) / statistics.median(before), draws[DRAWS // 40], draws[-DRAWS // 40]]
    return [100 * (v - 1) for v in values]


def measure(options, kind, is_attached):
    core = min(os.sched_getaffinity(0))
    first, second = (Program(options.python, kind, core) for _ in range(2))
    for p in (first, second):
        for _ in range(WARM_UP):
            p.turn()
    before = ratios(first, second, options.rounds)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-after-"))
    try:
        ebb = None
        if is_attached:
            ebb = subprocess.Popen([options.program, "attach", "--run-dir", folder / "run", str(second.process.pid)],
                                   stderr=subprocess.PIPE, text=True)
            second.process.stdin.write("\n" * 100)  # the attach needs a program that runs Python code
            second.process.stdin.flush()
            text = ebb.stderr.readline()
            assert "attached to process" in text and "without lines" not in text, text
            for _ in range(100):
                second.process.stdout.readline()
        ratios(first, second, WARM_UP)
        if ebb:
            detach = subprocess.Popen([options.program, "detach", str(second.process.pid)])
            while detach.poll() is None:
                second.turn()
            text = ebb.communicate()[1]
            assert ebb.returncode == 0 and detach.returncode == 0 and "cannot" not in text, text
        ratios(first, second, WARM_UP)
        after = ratios(first, second, options.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first.end()
    second.end()
    middle, low, high = change_percent(before, after)
    print(f"{kind:6} {'after detach' if is_attached else 'control':13} {middle:+.2f} % [{low:+.2f}, {high:+.2f}]",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    for kind in ["plain"] + ["torch"] * has_torch:
        for is_attached in (False, True):
            measure(options, kind, is_attached)


if __name__ == "__main__":
    main()
