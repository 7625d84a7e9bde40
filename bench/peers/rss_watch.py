#!/usr/bin/env python3
"""A typical hand-written leak check: samples the sum of RSS of a process tree, and compares its growth with a
threshold.

    rss_watch.py REPORT PROGRAM [ARGUMENT]...

It starts to sample at the first step, and reports a leak if the median of the last samples exceeds the median of the
first samples by more than THRESHOLD_MB. It uses medians because the process is already exiting during the last samples.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import psutil

INTERVAL_S = 0.5
WINDOW = 10  # This many samples from the beginning of the run are compared with as many from its end.
THRESHOLD_MB = 50


def tree_mb(process):
    total = 0
    try:
        for each in [process, *process.children(recursive=True)]:
            total += each.memory_info().rss
    except psutil.Error:
        return None
    return total / 1e6


def main():
    report, program = sys.argv[1], sys.argv[2:]
    job, readings, counts = subprocess.Popen([sys.executable, *program]), [], os.environ["ZOO_COUNTS"]
    process = psutil.Process(job.pid)
    while job.poll() is None:
        found = tree_mb(process)
        if found and os.path.exists(counts) and os.path.getsize(counts):
            readings.append(found)
            print(f"{time.strftime('%H:%M:%S')} {found:.0f} MB")
        time.sleep(INTERVAL_S)
    window = min(WINDOW, len(readings) // 3)
    if window:
        grown = statistics.median(readings[-window:]) - statistics.median(readings[:window])
        with open(report, "w", encoding="ascii") as file:
            json.dump({"leak": grown > THRESHOLD_MB, "grown_mb": grown}, file)
    sys.exit(job.returncode)


if __name__ == "__main__":
    main()
