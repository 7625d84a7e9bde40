#!/usr/bin/env python3
"""Runs one command until it exits or reaches its deadline, and records the resources of all its processes.

    keeper.py --out FILE --deadline SECONDS [--look-ms MS] -- COMMAND...

This process is a subreaper: processes of the tool that outlive the job are included and finally killed. --look-ms MS
adds up the memory of all processes every MS milliseconds, which disturbs timed runs. File pages are excluded: their
share per process depends on how many other programs map the same libraries. """

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
LINGER_S = 20


def parents():
    """Returns {pid: parent} of every process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    found[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    return found


def below(top):
    """Returns the pids of all descendants."""
    above = parents()
    found, layer = [], [top]
    while layer:
        layer = [pid for pid, parent in above.items() if parent in layer]
        found += layer
    return found


def own_bytes(pids):
    """Returns the anonymous and shared memory of the processes; a page shared by several processes is included once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file
                             if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
        except OSError:
            continue
    return total


def reap(child, found):
    """Reaps processes that have exited. Returns false if none is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == child.pid:
            found["wall_s"] = time.monotonic() - found["begun"]
            found["status"] = child.returncode = os.waitstatus_to_exitcode(status)


def end_all():
    for _ in range(50):
        left = below(os.getpid())
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return


def keep(command, deadline_s, look_ms):
    found = {"begun": time.monotonic(), "peak_bytes": 0, "timed_out": False, "lingered": False}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    look_at = 0.0
    while reap(child, found):
        now = time.monotonic()
        if "wall_s" not in found and now - found["begun"] > deadline_s:
            found["timed_out"] = True
            break
        if "wall_s" in found and now - found["begun"] > found["wall_s"] + LINGER_S:
            found["lingered"] = True
            break
        if look_ms and now >= look_at:
            found["peak_bytes"] = max(found["peak_bytes"], own_bytes(below(os.getpid())))
            look_at = time.monotonic() + look_ms / 1000
        time.sleep(0.01)
    end_all()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["cpu_s"] = usage.ru_utime + usage.ru_stime
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--look-ms", type=int, default=0)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = keep(args.command, args.deadline, args.look_ms)
    except KeyboardInterrupt:
        end_all()
        sys.exit(130)
    with open(args.out, "w", encoding="ascii") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
