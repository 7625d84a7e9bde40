#!/usr/bin/env python3
"""Starts a program of the zoo and, after its first step, attaches memray to it.

    attach.py OUTPUT PROGRAM [ARGUMENT]...
"""

import os
import subprocess
import sys
import time

ATTACH_S = 30


def wait_for_step(job, path):
    while job.poll() is None:
        if os.path.exists(path) and os.path.getsize(path):
            return True
        time.sleep(0.05)
    return False


def main():
    output, program = sys.argv[1], sys.argv[2:]
    job = subprocess.Popen([sys.executable, *program])
    if wait_for_step(job, os.environ["ZOO_COUNTS"]):
        asked = subprocess.run([sys.executable, "-m", "memray", "attach", "--method", "gdb", "-o",
                                output, str(job.pid)], check=False, timeout=ATTACH_S,
                               capture_output=True, text=True)
        if asked.returncode:
            print("memray attach:", (asked.stdout + asked.stderr).strip(), file=sys.stderr)
    sys.exit(job.wait())


if __name__ == "__main__":
    main()
