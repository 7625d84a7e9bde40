#!/usr/bin/env python3
"""Counts how many more instructions a program executes per turn of its loop after an attach and a detach.

    bench/attach/after.py [--python build/venv/bin/python] [--turns 20]

The count does not depend on the other work of the machine, unlike the times that bench/heap/detached.py compares.
Prints how much the median of the turns changes after an attach and a detach and, as a control, after a pause without
them. The modules that ebb imports also change Python's caches and malloc's lists. This effect differs from process to
process, so the measurement should be repeated."""

import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import gc, mmap, os, sys, threading
kind, path = sys.argv[1:]
if kind == "torch":
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(16, 32), torch.randint(0, 4, (16,)))
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
        for i in range(100):
            kept[i % 50] = [str(i), bytearray(i % 3000)]
# malloc takes its locks once a process has had a second thread, as every torch program has
thread = threading.Thread(target=turn)
thread.start()
thread.join()
for _ in range(100):
    turn()
gc.freeze()
gc.disable()  # a collection in some of the turns only would hide small changes
flag = mmap.mmap(os.open(path, os.O_RDWR), 4096)
print("ready", flush=True)
while not flag[1]:
    flag[0] = 1
    turn()
    flag[0] = 0
"""


def count(options, pid, flag):
    done = subprocess.run([options.counter, str(pid), flag, str(options.turns)], stdout=subprocess.PIPE, text=True,
                          check=True)
    return [int(line) for line in done.stdout.split()]


def measure(options, kind, is_attached, folder):
    flag = folder / "flag"
    flag.write_bytes(bytes(4096))
    job = subprocess.Popen([options.python, "-c", PROGRAM, kind, flag], stdout=subprocess.PIPE, text=True,
                           env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"})
    assert job.stdout.readline() == "ready\n"
    before = count(options, job.pid, flag)
    command = [options.program, "attach", "--for", "2s", "--run-dir", folder / "run", str(job.pid)]
    ebb = subprocess.run(command if is_attached else ["sleep", "2"], stderr=subprocess.PIPE, text=True, check=True)
    assert "cannot" not in ebb.stderr and "without heap profile" not in ebb.stderr, ebb.stderr
    after = count(options, job.pid, flag)
    with flag.open("r+b") as f:
        f.write(b"\0\1")
    assert job.wait() == 0
    middle = statistics.median(before)
    change = 100 * (statistics.median(after) / middle - 1)
    spread = [100 * (n / middle - 1) for n in sorted(before)]
    print(f"{kind:6} {'after detach' if is_attached else 'control':13} {change:+.3f} %; median of {options.turns} turns "
          f"{middle:.0f} instructions, before from {spread[0]:+.3f} % to {spread[-1]:+.3f} %", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--counter", default=ROOT / "build" / "bench" / "attach" / "instructions")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    for kind in options.kinds or ["plain"] + ["torch"] * has_torch:
        for is_attached in (False, True):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-after-"))
            try:
                measure(options, kind, is_attached, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
