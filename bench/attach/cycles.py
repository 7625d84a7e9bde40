#!/usr/bin/env python3
"""Attaches to busy programs and detaches again, many times, and counts failures.

    bench/attach/cycles.py --cycles 1000                    one torch training, attached to 1,000 times
    bench/attach/cycles.py --cycles 200 --python PYTHON     the same with another Python, without torch
    bench/attach/cycles.py --adversarial 200                programs that import, fork, exec, collect, …

A cycle passes if ebb attached and detached, and the result of the program is the same as without ebb. An adversarial
attach passes if the program is unharmed, even if ebb refused to attach and printed a reason."""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UNITS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
MOMENTS = ["imports", "forks", "execs", "collections", "calls", "exits", "mallocs", "sandbox",
           "traced"]
SETTLE_S = 2
# paths that may stay mapped or open after a detach: the profiler, Python modules that ebb imports, and libffi, which
# keeps its own file open from version 3.5 on
MAY_STAY = r"/libebb-heap\.so$|/lib-dynload/|/libffi\.so"


class Target:
    """A running program of targets.py."""

    def __init__(self, python, name, folder, steps=0):
        self.stop_file = folder / f"stop-{name}-{random.random()}"
        command = [python, HERE / "targets.py", name, self.stop_file] + ([str(steps)] * bool(steps))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8",
                                        start_new_session=True)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"

    def finish(self, patience_s=120):
        """Ends the program; returns its exit status and its last output."""
        self.stop_file.touch()
        try:
            text = self.process.communicate(timeout=patience_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
            return "hung", ""
        return self.process.returncode, text

    def left(self):
        """Returns the open descriptors, the number of threads and the mapped files of the process. Files in /dev/shm
        are left out, because data-loader workers pass batches in them."""
        links = []
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # the descriptor was closed after it was listed
                links.append(os.readlink(f"/proc/{self.pid}/fd/{fd}"))
        fds = sorted(link.split(":")[0] for link in links if not re.search("^/dev/shm/|/libffi", link))
        maps = {line.split()[5] for line in open(f"/proc/{self.pid}/maps")
                if "/" in line and "/dev/shm/" not in line}
        return fds, len(os.listdir(f"/proc/{self.pid}/task")), maps

    def left_at_least(self):
        """Samples descriptors, threads and mapped files for a while, and returns the smallest result of each. A single
        sample may be too large: a data loader has an additional socket while it receives a batch."""
        fds, threads, maps = self.left()
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until and self.process.poll() is None:
            time.sleep(0.01)
            now = self.left()
            fds, threads, maps = min(fds, now[0], key=len), min(threads, now[1]), maps & now[2]
        return fds, threads, maps


def attach(program, pid, folder, *options):
    """Attaches ebb and detaches it immediately. Returns ebb's exit status, the pause of the program in ms, and ebb's
    output."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    result = subprocess.run([program, "attach", "--for", "50ms", "--run-dir", run, *options,
                             str(pid)], stderr=subprocess.PIPE, encoding="utf-8", timeout=200)
    found = re.search(r"paused the job for ([\d.]+) (\S+);", result.stderr)
    pause = float(found[1]) * UNITS[found[2]] if found else None
    return result.returncode, pause, result.stderr


def cycles(program, python, count, folder):
    name = "plain" if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode else "torch"
    target = Target(python, name, folder)
    failed, pauses, before = [], [], target.left_at_least()
    for _ in range(count):
        status, pause, text = attach(program, target.pid, folder)
        if status or re.search("cannot|without heap profile|has exited", text):
            failed.append(text.strip().splitlines()[0])
        if pause is not None:
            pauses.append(pause)
        if target.process.poll() is not None:
            break
    after = target.left_at_least() if target.process.poll() is None else ([], 0, set())
    status, text = target.finish()
    facts = json.loads(text.splitlines()[-1]) if status == 0 else {}
    same = None
    if facts:
        again = Target(python, name, folder, facts["steps"]).finish(3600)
        same = json.loads(again[1].splitlines()[-1])["weights"] == facts["weights"]
    new_maps = sorted(path for path in after[2] - before[2] if not re.search(MAY_STAY, path))
    print(f"{name} on {python}: {count} cycles, {len(failed)} failed, "
          f"exit status {status}, steps {facts.get('steps')}, equal result: {same}")
    print(f"  pause: median {sorted(pauses)[len(pauses) // 2]:.2f} ms, longest {max(pauses):.2f} ms, "
          f"over 20 ms: {sum(p > 20 for p in pauses)}")
    print(f"  left: fds {len(after[0]) - len(before[0]):+d}, threads {after[1] - before[1]:+d}, "
          f"files mapped {new_maps}")
    for text in sorted(set(failed))[:5]:
        print(f"  failure: {text}")
    return not failed and status == 0 and same and after[:2] == before[:2] and not new_maps


def traced(target):
    """Starts a process that traces the target, and returns its pid. The caller kills it."""
    tracer = os.fork()
    if tracer == 0:
        ctypes.CDLL(None).ptrace(0x4206, target.pid, 0, 0)
        signal.pause()
        os._exit(0)
    time.sleep(0.05)
    return tracer


def adversarial(program, python, count, folder):
    results = {moment: {"attached": 0, "refused": 0, "harmed": 0} for moment in MOMENTS}
    sentences, longest = {}, 0.0
    for i in range(count):
        moment = MOMENTS[i % len(MOMENTS)]
        target = Target(python, "calls" if moment == "traced" else moment, folder)
        tracer = traced(target) if moment == "traced" else 0
        time.sleep(random.random() / 10)
        status, pause, text = attach(program, target.pid, folder)
        longest = max(longest, pause or 0.0)
        if tracer:
            os.kill(tracer, signal.SIGKILL)
            os.waitpid(tracer, 0)
        is_refused = status == 2 and text.startswith("ebb: ")
        ended, _ = target.finish()
        if ended != 0 or status not in (0, 2):
            results[moment]["harmed"] += 1
            print(f"  {moment}: exit status {ended}, ebb's {status}: {text.strip()}")
        else:
            results[moment]["refused" if is_refused else "attached"] += 1
        if is_refused:
            sentences.setdefault(moment, re.sub(r"\d+", "N", text.strip().splitlines()[-1]))
    for moment, counts in results.items():
        print(f"{moment:12} " + ", ".join(f"{n} {what}" for what, n in counts.items())
              + (f"  ({sentences[moment]})" if moment in sentences else ""))
    print(f"longest pause {longest:.2f} ms")
    return not any(counts["harmed"] for counts in results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=os.environ.get("EBB_VENV", "") + "/bin/python"
                        if os.environ.get("EBB_VENV") else sys.executable)
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--adversarial", type=int, default=0)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-cycles-"))
    is_fine = True
    try:
        if options.cycles:
            is_fine &= bool(cycles(options.program, options.python, options.cycles, folder))
        if options.adversarial:
            is_fine &= adversarial(options.program, options.python, options.adversarial, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
