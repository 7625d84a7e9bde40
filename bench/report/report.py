#!/usr/bin/env python3
"""Measures the report page of a full day: its size, and the time to create and to open it.

    bench/report/report.py [--json] [--runs N] [--build DIR]

tests/tools/day creates the recording: 86,400 seconds with eight processes at a time and 108 in all, four GPUs,
43,200 steps, epochs, evaluations, checkpoints, phases, a restart, 288 guard actions, ten figures of the job and two
heap histories.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from run import measure, say  # noqa: E402

ROOT = HERE.parents[1]


def timed(command):
    """Returns the wall time and the CPU time of COMMAND, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def browser_of(options):
    """Returns the paths of node's browser driver and of the browser, or the reason why they are not available."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program or not shutil.which("npm"):
        return None, "npm or chromium is not installed (scripts/setup.sh web, then browser)"
    folder = pathlib.Path(options.build) / "web-tests"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "tests" / "web" / name, folder)
    shutil.copy(HERE / "open.mjs", folder)
    fetched = subprocess.run([ROOT / "scripts" / "fetch_npm.sh", "npm", folder], text=True,
                             stdout=subprocess.PIPE)
    return (folder, program) if fetched.returncode == 0 else (None, fetched.stdout.strip())


def open_page(table, options, page):
    folder, program = browser_of(options)
    if not folder:
        table.title(f"Opening it: left out, {program}")
        return []
    out = subprocess.run(["node", "open.mjs", program, page, str(options.runs)], cwd=folder, text=True,
                         check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    seen = json.loads(out)
    middle = {key: statistics.median(s[key] for s in seen) for key in ("load", "painted", "zoom")}
    table.title(f"Opening it in chromium (medians of {len(seen)}, each in a fresh window)")
    table.bar("until it is painted, plots and all", middle["painted"] / 1e3, 1, "s", digits=2,
              note=f"loaded after {middle['load'] / 1e3:.2f} s; the slowest "
                   f"{max(s['painted'] for s in seen) / 1e3:.2f} s; {seen[0]['plots']} plots")
    table.row("looking closer, until the next frame is shown", f"{middle['zoom']:.0f} ms")
    return seen


def run_parts(table, options):
    say("report: a day")
    run = f"{options.scratch}/day"
    subprocess.run([options.day, run], check=True)
    pages = [timed([options.ebb, "report", run]) for _ in range(options.runs)]
    page = f"{run}/report.html"
    wall, cpu = (statistics.median(p[i] for p in pages) for i in (0, 1))
    recording = os.path.getsize(f"{run}/trace.ebb")
    table.title("The page of a day: 8 processes at 1 Hz (108 in all), 4 GPUs, 43,200 steps, everything on")
    table.bar("size", os.path.getsize(page) / 1e6, 1.5, "MB", digits=2,
              note=f"of a recording of {recording / 1e6:.1f} MB")
    table.row("ebb report, wall time", f"{wall:.2f} s",
              f"{cpu:.2f} s of CPU; medians of {len(pages)}; verdict, diagnosis and call sites included")
    return {"size": os.path.getsize(page), "made": pages, "opened": open_page(table, options, page)}


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--json", action="store_true", help="print everything as one JSON document")
    p.add_argument("--runs", type=int, default=7, help="of each measurement (%(default)s)")
    p.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"),
                   help="the build folder (%(default)s)")
    options = p.parse_args(argv)
    options.build = os.path.abspath(options.build)
    options.ebb = os.environ.get("EBB_BINARY", f"{options.build}/ebb")
    options.day = f"{options.build}/tests/tools/day"
    if not os.access(options.day, os.X_OK):
        p.error(f"there is no {options.day}; make bench-report builds it where cmocka is there")
    return options


def main(argv):
    return measure(parse(argv), run_parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
