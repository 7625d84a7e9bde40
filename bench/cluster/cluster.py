#!/usr/bin/env python3
"""Measures `ebb watch` on a simulated job of 64 ranks on 8 nodes, and the growth of the job's folder.

The folder already has hours of recordings and grows in real time while ebb watches it. The tool tests/tools/cluster
writes the folder. The tool tests/tools/day writes heap histories, and also a recording with GPUs and with figures that
the job reports. Prints one line per requirement; the exit status is 1 if a requirement is not met."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# A recording consists of compressed blocks and a tail of uncompressed parts. About every half hour the writer
# compresses the tail into a block. The simulated past ends shortly before that, when the tail is longest.
NODES, RANKS, PAST_S, HOUR_S = 8, 8, 3600 + 1600, 3600
CPU_PERCENT, MEMORY_MB, GROWTH_MB = 2, 30, 2


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def size(folder, pattern):
    return [path.stat().st_size for path in sorted(folder.glob(pattern))]


def watch(ebb, tools, folder, seconds):
    """Returns three figures of `ebb watch`: CPU use in percent of a core while it follows the job, CPU seconds until
    its first line of output, and peak memory in MB."""
    steps = PAST_S + int(seconds) + 60
    writer = subprocess.Popen([tools / "cluster", folder, str(NODES), str(RANKS), str(steps), "leak=37",
                               "running", "live=1", f"past={PAST_S}"])
    try:
        while not all((folder / f"node-{i:02}" / "heartbeat").exists() for i in range(NODES)) or \
                f'"seq":{PAST_S}' not in (folder / f"node-{NODES - 1:02}" / "heartbeat").read_text():
            time.sleep(0.2)
        process = subprocess.Popen([ebb, "watch", folder], stdout=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        begun, before = time.monotonic(), cpu_s(process.pid)
        time.sleep(seconds)
        spent = (cpu_s(process.pid) - before) / (time.monotonic() - begun)
        peak = peak_mb(process.pid)
        process.terminate()
        rest = process.communicate()[0].splitlines()
    finally:
        writer.kill()
        writer.wait()
    assert "rank 37 of 64" in first, first
    steps = [int(line.split("step ")[1].split()[0]) for line in rest]
    assert len(steps) > seconds / 20 and steps[-1] > PAST_S, rest
    return 100 * spent, before, peak


def growth_mb(tools, folder):
    """Returns the size in MB of a node's recording and of one heap history after the first hour."""
    subprocess.run([tools / "day", folder, str(HOUR_S)], check=True)
    return max(size(folder, "trace.ebb")) / 1e6, max(size(folder, "heap.*")) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150, help="how long to watch (default: 150)")
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get("EBB_BUILD_DIR", "build")).resolve()
    tools = build / "tests" / "tools"
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        cpu, first_s, peak = watch(os.environ.get("EBB_BINARY", build / "ebb"), tools, work / "1.0", options.seconds)
        trace, heap = growth_mb(tools, work / "day")
    grown = trace + RANKS * heap
    print(f"{NODES * RANKS} ranks on {NODES} nodes, {PAST_S} s old, watched for {options.seconds:.0f} s")
    print(f"ebb watch: {cpu:.2f} % of a core (required: {CPU_PERCENT} %), {first_s:.2f} s of CPU for the first reading")
    print(f"ebb watch: {peak:.1f} MB at most (required: {MEMORY_MB} MB)")
    print(f"folder: {grown:.2f} MB per node in the first hour (required: {GROWTH_MB} MB): recording {trace:.2f}, "
          f"{RANKS} heap histories of {heap:.2f}")
    return int(cpu >= CPU_PERCENT or peak >= MEMORY_MB or grown >= GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main())
