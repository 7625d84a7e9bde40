"""Compares the output of `ebb heap` with the truth: call sites with known live bytes, and a leak among much temporary
memory."""

import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
# pylint: disable=wrong-import-position
from run import median, say, start  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
INTERVAL = 128 << 10
PATIENCE_S = 120
LOOK_EVERY_S = 1.0


def clean_env():
    return {key: value for key, value in os.environ.items() if not key.startswith(("EBB_", "LD_"))}


def start_run(options, run, flags, program):
    return start([options.ebb, "run", "-q", "-d", run, *flags, "--", *program], env=clean_env(),
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def heap(options, run, *flags):
    """Returns the current output of `ebb heap`, or None if there is none yet."""
    said = subprocess.run([options.ebb, "heap", "--json", *flags, run], capture_output=True, check=False)
    try:
        return json.loads(said.stdout)
    except ValueError:
        return None


def end(job):
    job.terminate()
    try:
        job.wait(30)
    except subprocess.TimeoutExpired:
        job.kill()


# ---- call sites ----


def wait_for_file(path, job):
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit and job.poll() is None and not os.path.exists(path):
        time.sleep(0.1)
    time.sleep(0.2)
    with open(path, encoding="ascii") as lines:
        return {name: (float(held), math.sqrt(float(variance)))
                for name, held, variance in (line.split() for line in lines)}


def sites_of(found):
    """Returns the live bytes and their bounds, by function."""
    rows = {}
    for row in found["rows"]:
        name, live = row["where"]["function"], row["live"]
        total = rows.setdefault(name, [0, 0, 0])
        for i, key in enumerate(("bytes", "low", "high")):
            total[i] += live[key]
    return rows


def compare(truth, rows):
    """Returns for each site the error of the estimate, in standard deviations, and whether the true value is within the
    bounds."""
    found = []
    for name, (held, sigma) in truth.items():
        live, low, high = rows.get(name, (0, 0, 0))
        found.append({"name": name, "true": held, "found": live, "sigmas": (live - held) / max(sigma, 1),
                      "within": low <= held <= high})
    return found


def part_truth(table, options):
    seeds = range(1, 3 if options.quick else 7)
    seconds = 6 if options.quick else 12
    kinds = {"C": [f"{options.bench}/heap/sites"], "Python": ["/usr/bin/python3", f"{HERE}/sites.py"]}
    jobs = []
    say(f"truth: {2 * len(seeds)} programs for {seconds} s")
    for kind, program in kinds.items():
        for seed in seeds:
            run = f"{options.scratch}/truth-{kind}-{seed}"
            told = run + ".told"
            job = start_run(options, run, [f"--heap-interval={INTERVAL}"],
                            [*program, str(seed), str(INTERVAL), str(seconds), told])
            jobs.append((kind, run, told, job))
    results = {kind: [] for kind in kinds}
    coarser = 0
    for kind, run, told, job in jobs:
        truth = wait_for_file(told, job)
        found = heap(options, run, "--by=function", "--top=512")
        if is_coarser(found):
            coarser += 1
        else:
            results[kind] += compare(truth, sites_of(found))
        end(job)
    table.title(f"Truth: live bytes of call sites that count them, one sample in {INTERVAL >> 10} KiB")
    for kind, sites in results.items():
        truth_rows(table, kind, sites)
    if coarser:
        table.row("programs whose sampling became coarser", str(coarser), "left out: what it allows is not known to them")
    return results


def is_coarser(found):
    cost = found.get("cost") or {}
    return cost.get("interval_bytes", INTERVAL) != INTERVAL


def truth_rows(table, kind, sites):
    n = len(sites)
    if n == 0:
        return
    inside = sum(abs(site["sigmas"]) <= 2 for site in sites)
    # Expected number of sites whose true value is outside the 95 % bounds by chance.
    allowed = 100 * 2 * math.sqrt(0.95 * 0.05 / n)
    total = sum(site["found"] for site in sites) / sum(site["true"] for site in sites)
    table.bar(f"{kind}: sites within 2 standard deviations", 100 * inside / n, round(95 - allowed, 1), "%",
              more_is_better=True, note=f"{inside} of {n}; the bar is 95 % less {allowed:.1f}, which is chance with so "
              f"many; all together {total:.3f} of the truth")
    within = sum(site["within"] for site in sites)
    spread = math.sqrt(sum(site["sigmas"] ** 2 for site in sites) / n)
    table.row(f"{kind}: the truth within the bounds that ebb prints", f"{100 * within / n:.1f} %",
              f"bounds of 95 %; deviation over that expected {spread:.2f}, mean "
              f"{sum(site['sigmas'] for site in sites) / n:+.2f}")


# ---- a leak ----


def leaking_line(kind):
    with open(f"{HERE}/leak.py", encoding="utf-8") as lines:
        return next(i for i, line in enumerate(lines, 1) if line.rstrip().endswith(f"# leaks: {kind}"))


def is_first(found, line):
    if not found or not found["rows"]:
        return False
    where = found["rows"][0]["where"]
    return where["line"] == line and (where["file"] or "").endswith("leak.py")


def watch_leak(options, run, line, seconds):
    """Polls `ebb heap` once per second. Returns the time when the line first appeared in the table, and the times of
    the polls in which it was in the first row."""
    begin, looks, last = time.monotonic(), [], None
    while time.monotonic() - begin < seconds:
        found = heap(options, run, "--top=1")
        if found and found.get("rows"):
            last = found["rows"][0]
        looks.append((time.monotonic() - begin, is_first(found, line)))
        time.sleep(LOOK_EVERY_S)
    return {"first_s": next((at for at, first in looks if first), None), "stays_s": stays(looks), "looks": looks,
            "last": last and {"verdict": last["verdict"]["verdict"], "growth_bytes": last["growth_bytes"]}}


def stays(looks):
    """Returns the time from which on every poll found the source line in the first row."""
    since = None
    for at, first in looks:
        since = (since if since is not None else at) if first else None
    return since


def part_leak(table, options):
    runs, seconds = (1, 25) if options.quick else (2, 58)
    kinds = ("blocks", "objects")
    table.title("A leak of 50 MB among 5 GB that come and go in 45 s: the first row of `ebb heap`, looked at every second")
    say(f"leak: {runs} times {seconds} s")
    with ThreadPoolExecutor(len(kinds)) as pool:
        results = dict(zip(kinds, pool.map(lambda kind: leak_runs(options, kind, runs, seconds), kinds)))
    for kind, found in results.items():
        leak_row(table, kind, found)
    return results


def leak_row(table, kind, found):
    late = [run["stays_s"] if run["stays_s"] is not None else math.inf for run in found]
    ends = ", ".join(f"{run['last']['verdict']}, {run['last']['growth_bytes'] / 1e6:+.0f} MB"
                     for run in found if run["last"])
    table.bar(f"{kind}: its line is the first row from then on, latest of {len(found)}", max(late), 60, "s",
              note="first seen there after " + ", ".join(seconds_or_never(run["first_s"]) for run in found) +
              f"; median {median(late):.1f} s; at the end {ends}")


def seconds_or_never(value):
    return "never" if value is None else f"{value:.1f} s"


def leak_runs(options, kind, count, seconds):
    line, found = leaking_line(kind), []
    for i in range(count):
        run = f"{options.scratch}/leak-{kind}-{i}"
        job = start_run(options, run, [], ["/usr/bin/python3", f"{HERE}/leak.py", kind])
        found.append(watch_leak(options, run, line, seconds))
        end(job)
    return found
