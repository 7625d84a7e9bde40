#!/usr/bin/env python3
"""Measures the guard and prints one table: each measurement, its result, the required value, and whether it is met.

    bench/guard/guard.py [--json] [--only PART[,PART]] [--runs N] [--build DIR]

Parts: ask, stop, checkpoint, jobs, beside. --runs N makes a quick measurement: N runs instead of 30 or 100, and 10 N
jobs instead of 1,000. Parts that the machine does not allow are left out, and the table says so. The exit status is 0
even if a requirement is not met.
"""

import argparse
import glob
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
# pylint: disable=wrong-import-position
from cgroups import Cgroup  # noqa: E402
from run import measure, median, meminfo_bytes, parsed, read_text, say, start  # noqa: E402

PARTS = ("ask", "stop", "checkpoint", "jobs", "beside")
MIB, GIB = 1 << 20, 1 << 30
PATIENCE_S = 180


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def reserve_of(limit):
    """Same as ladder_default_reserve: the headroom below which a checkpoint is requested."""
    return min(max(limit // 20, 64 * MIB), 4 * GIB, limit // 5)


def oom_kills():
    found = re.search(r"^oom_kill (\d+)$", read_text("/proc/vmstat"), re.M)
    return int(found.group(1)) if found else 0


# ---- bench/guard/leaker under ebb ---------------------------------------------------------------

FACTS = ("begun_ns", "last_ns", "bytes", "asked", "done", "crossing_ns", "crossed_ns", "heard_ns")


def leaker(options, ebb_flags, arguments, cgroup=None):
    """Runs bench/guard/leaker once. Returns a dict of its facts, run.json, exit status, output and number of OOM
    kills."""
    folder = tempfile.mkdtemp(dir=options.scratch)
    notes, run = f"{folder}/facts", f"{folder}/run"
    before = oom_kills(), cgroup.oom_kills() if cgroup else 0
    child = start([options.ebb, "run", "-q", "--run-dir", run, *ebb_flags, "--",
                   f"{options.bench}/guard/leaker", arguments[0], notes, *arguments[1:]],
                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                  preexec_fn=cgroup.enter if cgroup else None)
    out, err = child.communicate(timeout=PATIENCE_S)
    with open(notes, "rb") as file:
        found = dict(zip(FACTS, struct.unpack("8Q", file.read(64))))
    found["doc"] = json.loads(read_text(f"{run}/run.json"))
    found["status"] = child.returncode
    found["output"] = (out + err).decode(errors="replace")
    found["host_ooms"] = oom_kills() - before[0]
    found["cgroup_ooms"] = cgroup.oom_kills() - before[1] if cgroup else 0
    shutil.rmtree(folder)
    return found


def keep(found):
    """Returns the values that --json writes for one run."""
    doc = found["doc"]
    return {**{key: found[key] for key in FACTS}, "status": found["status"],
            "host_ooms": found["host_ooms"], "cgroup_ooms": found["cgroup_ooms"],
            "cause": doc["end"].get("cause"), "cause_kind": doc["end"].get("cause_kind"),
            "cgroup_peak_bytes": doc["guard"].get("cgroup_peak_bytes"),
            "events": [[e["act"], e["trigger"], e["t_s"]] for e in doc["guard"]["events"]]}


def counts_memory(options):
    """Returns whether a job gets its own memory cgroup on this machine."""
    found = leaker(options, ["--limit", "512M"], ["leak", "most_mib=1"])
    return found["doc"]["guard"]["kernel_limit"], found["doc"]["guard"].get("cgroup_trouble")


# ---- time from the trigger to the checkpoint request ---------------------------------------------

def ask_once(options, limit, reserve):
    # Without forecasts, no checkpoint is requested before memory crosses the threshold.
    return leaker(options, ["--limit", str(limit), "--reserve", str(reserve), "--no-forecast"],
                  ["cross", f"reserve_bytes={reserve}", f"hold_ms={1200 + random.randrange(1000)}"])


def part_ask(table, options):
    is_counted, why = counts_memory(options)
    table.title("Time from crossing the line to the checkpoint request, measured in the job "
                "(includes touching the 4 MiB that cross the line)")
    if not is_counted:
        table.row("left out", "-", f"no cgroup that counts the job's memory: {why}")
        return None
    results = {}
    for what, reserve in (("--limit 2G", reserve_of(2 * GIB)),
                          ("--limit 2G with the reserve of 16G", reserve_of(16 * GIB))):
        waits, touch = [], []
        for i in range(options.runs or 30):
            say(f"ask: {what}, {i + 1}")
            found = ask_once(options, 2 * GIB, reserve)
            if found["status"] or not found["heard_ns"]:
                raise SystemExit(f"bench: the crossing job ended with status {found['status']}: "
                                 f"{found['output']}")
            waits.append((found["heard_ns"] - found["crossing_ns"]) / 1e6)
            touch.append((found["crossed_ns"] - found["crossing_ns"]) / 1e6)
        table.bar(f"{what}: median", median(waits), 20, "ms",
                  note=f"p90 {quantile(waits, 0.9):.1f}, max {max(waits):.1f} ms of {len(waits)} runs; "
                       f"touching takes {median(touch):.1f} ms")
        results[what] = {"ms": waits, "touch_ms": touch}
    return results


# ---- stops by the guard before the kernel acts ---------------------------------------------------

def pace_of(found):
    took = (found["last_ns"] - found["begun_ns"]) / 1e9
    return found["bytes"] / took / GIB if took else 0


def is_ebb_first(found):
    return (found["doc"]["end"].get("cause_kind") == "guard" and found["cgroup_ooms"] == 0
            and found["status"] == 124)


def stop_runs(options, what, count, rate, deaf, is_outer):
    """Returns COUNT runs that grew at the intended rate, and up to COUNT runs that grew more slowly because the machine
    was busy."""
    flags = [] if is_outer else ["--limit", "2G"]
    arguments = ["leak", f"rate_mib={rate}", f"deaf={deaf}"]
    at_pace, slow = [], []
    while len(at_pace) < count and len(slow) < count:
        say(f"stop: {what}, {len(at_pace) + 1} and {len(slow)} slower ones")
        if is_outer:
            with Cgroup(2 * GIB) as cgroup:
                found = leaker(options, flags, arguments, cgroup)
        else:
            found = leaker(options, flags, arguments)
        (at_pace if pace_of(found) * 1024 >= rate * 0.95 else slow).append(found)
    return at_pace, slow


def stop_row(table, what, at_pace, slow, is_bar):
    runs = at_pace + slow
    first = sum(is_ebb_first(f) for f in at_pace)
    kills = sum(any(e["act"] == "kill" for e in f["doc"]["guard"]["events"]) for f in runs)
    paces = [pace_of(f) for f in at_pace]
    left = [2 * GIB - f["bytes"] for f in runs]
    slower = (f"; {sum(is_ebb_first(f) for f in slow)} of {len(slow)} slower ones, from "
              f"{min(pace_of(f) for f in slow):.2f} GiB/s") if slow else ""
    note = (f"pace {min(paces, default=0):.2f} to {max(paces, default=0):.2f} GiB/s{slower}; not "
            f"leaked yet when it ended: least {min(left) / MIB:.0f}, median "
            f"{median(left) / MIB:.0f} MiB; {kills} by the kill, the others by SIGTERM; OOM kills "
            f"on the whole host meanwhile: {sum(f['host_ooms'] for f in runs)}")
    if is_bar and at_pace:
        table.bar(what, first, len(at_pace), f"of {len(at_pace)}", more_is_better=True, digits=0,
                  note=note)
    else:
        table.row(what, f"{first} of {len(at_pace)}", note)
    return [keep(f) for f in runs]


def part_stop(table, options):
    is_counted, why = counts_memory(options)
    runs, extra = options.runs or 100, options.runs or 20
    table.title("A job that leaks in a cgroup whose kernel limit is 2 GiB: stopped by ebb before "
                "the kernel's OOM killer")
    ways = []
    if is_counted:
        ways += [("1 GiB/s, the job's own cgroup (--limit 2G)", runs, True, 1024, 0, False),
                 ("the same, ignoring SIGTERM", extra, False, 1024, 1, False),
                 ("the same, as fast as possible", extra, False, 0, 0, False)]
    else:
        table.row("the job's own cgroup: left out", "-", why)
    ways += [("1 GiB/s, a cgroup above ebb itself (no --limit)", runs, True, 1024, 0, True),
             ("the same, as fast as possible", extra, False, 0, 0, True)]
    results = {}
    for what, count, is_bar, rate, deaf, is_outer in ways:
        try:
            at_pace, slow = stop_runs(options, what, count, rate, deaf, is_outer)
        except OSError as error:
            table.row(f"{what}: left out", "-", str(error))
            continue
        results[f"{what}, {'outer' if is_outer else 'own'}"] = stop_row(table, what, at_pace, slow,
                                                                     is_bar)
    return results


# ---- the checkpoint completes -------------------------------------------------------------------

def part_checkpoint(table, options):
    count, at_once = options.runs or 100, 6
    began = time.monotonic()
    say(f"checkpoint: {count} runs, {at_once} at once")

    def once(i):
        time.sleep(0.4 * (i % at_once) if i < at_once else 0)
        # The requirement is 50 MB/s, which is 47.7 MiB/s.
        return leaker(options, ["--limit", "1G"], ["leak", "rate_mib=48", "save_ms=2000"])

    with ThreadPoolExecutor(at_once) as pool:
        runs = list(pool.map(once, range(count)))
    whole = [f for f in runs if f["done"] >= 1 and f["doc"]["guard"]["checkpoints"]]
    cut = [f for f in runs if f["asked"] > f["done"]]
    ages = []
    for f in whole:
        stop_s = max(e["t_s"] for e in f["doc"]["guard"]["events"] if e["act"] in ("term", "kill"))
        last = f["doc"]["guard"]["checkpoints"][-1]
        ages.append(stop_s - last["asked_t_s"])
    paces = [pace_of(f) * GIB / 1e6 for f in runs]
    table.title("A leak of 50 MB/s that continues during a checkpoint of 2 s, --limit 1G "
                f"({at_once} at once, {time.monotonic() - began:.0f} s)")
    table.bar("a checkpoint was requested and written", len(whole), count, f"of {count}",
              more_is_better=True, digits=0,
              note=f"growth {min(paces):.0f} to {max(paces):.0f} MB/s; requested "
                   f"{sum(f['asked'] for f in runs)} times, written "
                   f"{sum(f['done'] for f in runs)}")
    table.row("runs in which a checkpoint was interrupted", f"{len(cut)} of {count}",
              "a later one, after one was written" if cut else "")
    table.row("stopped by ebb, not by the kernel",
              f"{sum(is_ebb_first(f) for f in runs)} of {count}")
    if ages:
        table.row("work since the last checkpoint request, median",
                  f"{median(ages):.1f} s", f"max {max(ages):.1f} s, in a run of "
                  f"{median(f['doc']['segments'][0]['duration_s'] for f in runs):.0f} s")
    return [keep(f) for f in runs]


# ---- many jobs ----------------------------------------------------------------------------------

def run_jobs(options, count, ways, pause_ms=0):
    folder = tempfile.mkdtemp(dir=options.scratch)
    child = start([f"{options.bench}/guard/jobs", str(count), str(pause_ms),
                   f"{options.bench}/stamp", folder, *ways],
                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    out = child.communicate()[0]
    if child.returncode:
        raise SystemExit(f"bench: jobs ended with status {child.returncode}")
    doc = json.loads(out)
    doc["cgroups"], doc["cgroups_left"] = 0, 0
    for path in glob.glob(f"{folder}/*/run.json"):
        cgroup = json.loads(read_text(path))["guard"]["cgroup"]
        if cgroup:
            doc["cgroups"] += 1
            doc["cgroups_left"] += os.path.exists(f"/sys/fs/cgroup/{cgroup}")
    shutil.rmtree(folder)
    return doc


def ms(values):
    return median(values) / 1e6


def part_jobs(table, options):
    count = 10 * options.runs if options.runs else 1000
    say(f"jobs: {count} in sequence")
    doc = run_jobs(options, count, ["plain", "full"])
    plain, full = doc["ways"]["plain"], doc["ways"]["full"]
    table.title(f"{count} jobs in sequence from one long-lived parent, recorded and "
                "guarded, alternating with fork + exec alone")
    table.bar("growth of the parent's RSS",
              (doc["rss_after"] - doc["rss_before"]) / 1e6, 1, "MB", digits=3,
              note=f"{doc['rss_before'] / 1e6:.2f} to {doc['rss_after'] / 1e6:.2f} MB")
    table.bar("zombies and processes left", doc["zombies"] + (not doc["is_alone"]), 0, "",
              digits=0, note="the parent is a subreaper, so orphans become its children")
    table.bar("fds left", doc["fds_after"] - doc["fds_before"], 0, "", digits=0)
    table.bar("cgroups left", doc["cgroups_left"], 0, "", digits=0,
              note=f"of {doc['cgroups']} made")
    table.bar("time added by ebb until main is reached, median", ms(full["start_ns"]) -
              ms(plain["start_ns"]), 5, "ms", digits=2,
              note=f"{ms(full['start_ns']):.2f} (p90 {quantile(full['start_ns'], .9) / 1e6:.2f}); "
                   f"fork + exec alone {ms(plain['start_ns']):.2f} "
                   f"(p90 {quantile(plain['start_ns'], .9) / 1e6:.2f})")
    table.row("time added by ebb until the job has ended, median",
              f"{ms(full['life_ns']) - ms(plain['life_ns']):.2f} ms",
              f"{ms(full['life_ns']):.2f}; alone {ms(plain['life_ns']):.2f}")
    say("jobs: parts of the added time")
    part = run_jobs(options, max(10, count // 10),
                    ["plain", "full", "no-record", "no-cgroup", "no-guard"])
    for way, what in (("no-record", "recording"), ("no-cgroup", "the job's cgroup"),
                      ("no-guard", "reflex and lines")):
        of = part["ways"]
        table.row(f"part: {what}",
                  f"{ms(of['full']['start_ns']) - ms(of[way]['start_ns']):.2f} ms",
                  f"and {ms(of['full']['life_ns']) - ms(of[way]['life_ns']):.2f} ms until the job has ended; "
                  "measured by disabling it")
    rare = run_jobs(options, max(5, count // 20), ["plain", "full", "no-cgroup"], 200)["ways"]
    added = {way: ms(rare[way]["start_ns"]) - ms(rare["plain"]["start_ns"])
             for way in ("full", "no-cgroup")}
    table.row("time added by ebb until main is reached, one job every 0.6 s, median",
              f"{added['full']:.2f} ms",
              f"without a cgroup {added['no-cgroup']:.2f} ms: the kernel waits before it moves a "
              "process into another v1 cgroup, unless it has just done so")
    return {"many": doc, "parts": part, "rare": rare}


# ---- compared with other tools ------------------------------------------------------------------

TRAINER = {"steps": 1500, "step_ms": 20, "leak_kib": 2048, "base_mib": 64, "save_ms": 1000,
           "save_mib": 32}
SAVE_EVERY = (200, 600)  # Steps between checkpoints. Memory runs out at about step 470, after two checkpoints or none.
BESIDE_LIMIT = GIB
VAIN_STARTS = 3  # The restart loop gives up after this many starts from the same step.


class Marks:
    """Listens on a socket in place of ebb, and counts the steps that the trainer reports."""

    def __init__(self, path):
        self.steps, self.last = 0, 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.path = path
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while True:
            found = re.search(rb"^KIND=step\nSTEP=(\d+)$", self.socket.recv(4096), re.M)
            if found:
                self.steps += 1
                self.last = int(found.group(1))


def trainer(options, folder):
    return [f"{options.build}/examples/trainer", f"checkpoint={folder}/checkpoint",
            f"save_every={options.save_every}",
            *(f"{name}={value}" for name, value in TRAINER.items())]


def saved_step(folder):
    try:
        return int(read_text(f"{folder}/checkpoint"))
    except (OSError, ValueError):
        return 0


def beside_ebb(options, folder):
    run = f"{folder}/run"
    child = start([options.ebb, "run", "-q", "--run-dir", run, "--limit", str(BESIDE_LIMIT),
                   "--restart", "--", *trainer(options, folder)],
                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child.wait(PATIENCE_S)
    doc = json.loads(read_text(f"{run}/run.json"))
    steps = sum(s["last_step"] - s["first_step"] + 1 for s in doc["segments"])
    last = doc["segments"][-1]["last_step"]
    return {"finished": child.returncode == 0 and last == TRAINER["steps"], "steps": steps,
            "reached": last, "starts": len(doc["segments"]),
            "by": f"itself, after {len(doc['segments']) - 1} stops by ebb"
            if child.returncode == 0 else doc["end"].get("cause", "?"),
            "kept": last if child.returncode == 0 else saved_step(folder)}


def run_trainer(options, folder, command, marks, resume=False, **more):
    env = {**os.environ, "EBB_SOCKET": marks.path}
    env.pop("EBB_RESUME", None)
    if resume:
        env["EBB_RESUME"] = "1"
    child = start(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                  stderr=subprocess.STDOUT, **more)
    out = child.communicate(timeout=PATIENCE_S)[0].decode(errors="replace")
    time.sleep(0.05)  # The job's last marks may not have been received yet.
    return child.returncode, out


def outcome(folder, marks, status, by, starts=1):
    is_done = status == 0 and marks.last == TRAINER["steps"]
    return {"finished": is_done, "steps": marks.steps, "reached": marks.last, "starts": starts,
            "by": by, "kept": marks.last if is_done else saved_step(folder)}


def beside_limit(options, folder):
    marks = Marks(f"{folder}/marks")
    with Cgroup(BESIDE_LIMIT) as cgroup:
        status, _ = run_trainer(options, folder, trainer(options, folder), marks,
                                preexec_fn=cgroup.enter)
        kills = cgroup.oom_kills()
    return outcome(folder, marks, status, "the kernel's OOM killer" if kills else
                   f"status {status}")


def beside_loop(options, folder):
    marks = Marks(f"{folder}/marks")
    starts, vain, status = 0, 0, 1
    with Cgroup(BESIDE_LIMIT) as cgroup:
        while status and vain < VAIN_STARTS:
            before = saved_step(folder)
            status, _ = run_trainer(options, folder, trainer(options, folder), marks,
                                    resume=starts > 0, preexec_fn=cgroup.enter)
            starts += 1
            vain = vain + 1 if saved_step(folder) == before else 0
        kills = cgroup.oom_kills()
    by = (f"itself, after {kills} OOM kills" if status == 0 else
          f"the benchmark, after {VAIN_STARTS} OOM kills without progress")
    return outcome(folder, marks, status, by, starts)


def beside_earlyoom(options, folder):
    """Runs earlyoom and the trainer in their own pid namespace, where earlyoom cannot kill any other process."""
    marks = Marks(f"{folder}/marks")
    least = (meminfo_bytes("MemAvailable") - BESIDE_LIMIT) // 1024
    log = f"{folder}/earlyoom"
    script = ('earlyoom=$1 least=$2 log=$3; shift 3; "$earlyoom" -r 0 -M "$least" -s 100 '
              '--prefer "^trainer$" >"$log" 2>&1 & daemon=$!; sleep 0.3; "$@"; status=$?; '
              'kill "$daemon"; exit "$status"')
    command = ["unshare", "--fork", "--pid", "--mount-proc", "sh", "-c", script, "sh",
               options.earlyoom, str(least), log, *trainer(options, folder)]
    status, out = run_trainer(options, folder, command, marks)
    text = read_text(log) if os.path.exists(log) else out
    found = re.search(r"sending (SIG\w+) to process \d+ .*VmRSS (\d+) MiB", text)
    return outcome(folder, marks, status,
                   f"earlyoom's {found.group(1)} at {found.group(2)} MiB" if found else
                   f"status {status}: {(text.strip().splitlines() or [''])[-1]}")


def find_earlyoom(options):
    here = f"{options.build}/earlyoom/usr/bin/earlyoom"
    return here if os.access(here, os.X_OK) else shutil.which("earlyoom")


def may_unshare():
    return shutil.which("unshare") and subprocess.run(
        ["unshare", "--fork", "--pid", "--mount-proc", "true"], check=False,
        stderr=subprocess.DEVNULL).returncode == 0


# The compared ways to run the job, each with a title and a function.
WAYS = [(f"ebb run --limit {BESIDE_LIMIT // GIB}G --restart", beside_ebb),
        ("earlyoom, set to act at the same level", beside_earlyoom),
        ("a plain cgroup limit", beside_limit),
        ("the same, in a loop that restarts it", beside_loop)]


def part_beside(table, options):
    options.earlyoom = find_earlyoom(options)
    results = {}
    for options.save_every in SAVE_EVERY:
        results[options.save_every] = beside(table, options)
    return results


def beside(table, options):
    table.title(f"The same leaking trainer ({TRAINER['steps']} steps of {TRAINER['step_ms']} ms, "
                f"{TRAINER['leak_kib'] // 1024} MiB leaked at each, {BESIDE_LIMIT // GIB} GiB for "
                f"it; a checkpoint takes {TRAINER['save_ms'] / 1000:g} s), which saves every "
                f"{options.save_every} steps")
    results = {}
    for what, way in WAYS:
        say(f"beside: {what}")
        if way is beside_earlyoom and not (options.earlyoom and may_unshare()):
            table.row(f"{what}: left out", "-", "it is not here, or a pid namespace, without which "
                                                "it could end somebody else's process, is not "
                                                "allowed")
            continue
        folder = tempfile.mkdtemp(dir=options.scratch)
        began = time.monotonic()
        try:
            found = way(options, folder)
        except OSError as error:
            table.row(f"{what}: left out", "-", str(error))
            continue
        found["wall_s"] = time.monotonic() - began
        # Number of steps that were repeated after restarts.
        found["lost"] = found["steps"] - found["kept"]
        note = (f"{found['steps']} steps done, {found['lost']} of them lost; {found['starts']} "
                f"start{'s' if found['starts'] > 1 else ''}, {found['wall_s']:.1f} s; ended by "
                f"{found['by']}")
        if way is beside_ebb:
            table.bar(what, int(found["finished"]), 1, "finished", more_is_better=True, digits=0,
                      note=note)
        else:
            table.row(what, "finished" if found["finished"] else "not finished", note)
        results[what] = found
    return results


# ---- the whole table ----------------------------------------------------------------------------

def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--json", action="store_true", help="print everything as one JSON document")
    p.add_argument("--only", metavar="PARTS", default=",".join(PARTS),
                   help="some of: " + ", ".join(PARTS))
    p.add_argument("--runs", type=int, default=0, metavar="N", help="a quick look: N runs of each")
    p.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"),
                   help="the build folder (%(default)s)")
    return parsed(p, argv, PARTS, "guard/leaker", "make bench-guard")


def run_parts(table, options):
    return {part: globals()[f"part_{part}"](table, options) for part in PARTS if part in options.only}


def main(argv):
    return measure(parse(argv), run_parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
