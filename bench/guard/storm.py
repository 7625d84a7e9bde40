#!/usr/bin/env python3
"""Measures how long a fork bomb without its own cgroup takes to end after it was cancelled.

    bench/guard/storm.py EBB [--processes N] [--runs N] [--json]

The job runs as an ordinary user with a limit of N processes; every process forks and ignores SIGTERM. Once the job has
reached the limit, it is cancelled with a grace period of one second. Prints one line per run: the times until the
supervisor answered and until the job had ended, in seconds since the cancel. The job is required to end within 10 s,
with 400 processes on two cores. Needs Python 3.8, and root to set the limit.
"""

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
BAR_S, PATIENCE_S = 10, 120
# Each process exits by itself after a while, so that the machine recovers even if ebb cannot end the job.
BOMB = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
until = time.monotonic() + {PATIENCE_S}
while time.monotonic() < until:
    try:
        os.fork()
    except OSError:
        pass
"""


class Pids:
    """A cgroup with a process limit, v1 or v2."""

    def __init__(self, most):
        top = "/sys/fs/cgroup/pids" if os.path.isdir("/sys/fs/cgroup/pids") else "/sys/fs/cgroup"
        self.most = most
        self.path = f"{top}/ebb-bench-storm-{os.getpid()}"
        os.mkdir(self.path)
        self.write("pids.max", most)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w", encoding="utf-8") as file:
            file.write(str(value))

    def count(self):
        with open(f"{self.path}/pids.current", encoding="utf-8") as file:
            return int(file.read())

    def remove(self):
        wait_for(lambda: self.count() == 0)
        os.rmdir(self.path)


def wait_for(condition):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    sys.exit("storm: timed out")


def facts(folder):
    try:
        with open(f"{folder}/run/run.json", encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def one_run(ebb, group, folder):
    def become_nobody():
        group.write("cgroup.procs", 0)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    subprocess.run([ebb, "run", "--detached", "--no-heap", "--no-shim", "--run-dir", f"{folder}/run", "--",
                    sys.executable, "-S", "-c", BOMB], cwd=folder, check=True, preexec_fn=become_nobody,
                   env={"PATH": os.environ["PATH"], "TMPDIR": folder})
    wait_for(lambda: group.count() >= group.most)
    control = socket.socket(socket.AF_UNIX)
    control.settimeout(PATIENCE_S)
    control.connect(wait_for(lambda: facts(folder).get("control")))
    request = json.dumps({"do": "cancel", "grace_s": 1}).encode()
    began = time.monotonic()
    control.sendall(b"r" + struct.pack("<I", len(request)) + request)
    read = b""
    while b'"answer"' not in read:
        read = read[-16:] + (control.recv(65536) or b'"answer"')
    answered = time.monotonic()
    wait_for(lambda: facts(folder).get("state") == "ended")
    return {"answer_s": answered - began, "end_s": time.monotonic() - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ebb")
    parser.add_argument("--processes", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.nice(-10)  # The measurement runs at a higher priority, because the fork bomb would delay it otherwise.
    for _ in range(options.runs):
        group = Pids(options.processes)
        folder = tempfile.mkdtemp(prefix="ebb-storm-")
        os.chmod(folder, 0o777)
        try:
            result = one_run(os.path.abspath(options.ebb), group, folder)
        finally:
            group.remove()
            shutil.rmtree(folder, ignore_errors=True)
        if options.json:
            print(json.dumps(result), flush=True)
        else:
            held = "held" if result["end_s"] <= BAR_S else "missed"
            print(f"answered after {result['answer_s']:.1f} s, ended after {result['end_s']:.1f} s "
                  f"(required: {BAR_S} s: {held})", flush=True)


if __name__ == "__main__":
    main()
