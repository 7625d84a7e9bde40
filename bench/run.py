#!/usr/bin/env python3
"""Runs all measurements and prints one table: each measurement, its result, the required value, and whether it is met.

    bench/run.py [--json] [--long] [--only PART[,PART]] [--build DIR]

Parts: tick, memory, stall, trace, run, output. With --long, the part `memory` records for ten minutes instead of 75 s.
Times are CPU time unless stated otherwise. Compared variants alternate within one run, so that a busy machine affects
both. The exit status is 0 even if a requirement is not met, because these are measurements and not tests.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import psutil
except ImportError:
    raise SystemExit("bench: this Python has no psutil; scripts/setup.sh bench installs it, for "
                     "/usr/bin/python3") from None

PARTS = ("tick", "memory", "stall", "trace", "run", "output")
median = statistics.median


class Table:
    def __init__(self):
        self.rows = []

    def title(self, text):
        self.rows.append({"title": text})

    def row(self, what, value, note=""):
        self.rows.append({"what": what, "value": value, "note": note})

    def bar(self, what, value, limit, unit, more_is_better=False, digits=1, note=""):
        """Adds a result with its required value. If the requirement is not met, the row shows by how much it was
        missed."""
        held = value >= limit if more_is_better else value <= limit
        by = f"{abs(value / limit - 1) * 100:.0f} %" if limit else f"{value - limit:g}"
        by = "" if held else f"MISSED by {by}"
        self.rows.append({
            "what": what, "value": f"{value:.{digits}f} {unit}".rstrip(),
            "bar": f"{'≥' if more_is_better else '≤'} {limit:g} {unit}".rstrip(),
            "held": held, "verdict": by or "held", "note": note,
            "number": value, "limit": limit, "unit": unit})

    def text(self):
        cells = [[r["what"], r["value"], r.get("bar", ""), r.get("verdict", ""), r["note"]]
                 for r in self.rows if "what" in r]
        widths = [max(len(c[i]) for c in cells) for i in range(4)]
        lines = []
        for r in self.rows:
            if "title" in r:
                lines += ["", r["title"]]
                continue
            line = [r["what"].ljust(widths[0]), r["value"].rjust(widths[1]),
                    r.get("bar", "").rjust(widths[2]), r.get("verdict", "").ljust(widths[3]),
                    r["note"]]
            lines.append(("  " + "  ".join(line)).rstrip())
        return "\n".join(lines)


# ---- helpers -------------------------------------------------------------------------------------

started = []  # Child processes; those still running at the end get SIGTERM.


def start(command, **more):
    child = subprocess.Popen(command, **more)
    started.append(child)
    return child


def end_all():
    for child in started:
        if child.poll() is None:
            child.terminate()
            child.wait()


def say(text):
    if sys.stderr.isatty() or os.environ.get("EBB_BENCH_PROGRESS"):
        print(f"bench: {text}", file=sys.stderr, flush=True)


def cpu_of(work):
    began = time.thread_time_ns()
    work()
    return time.thread_time_ns() - began


def cpu_clock_of(pid):
    """Returns the CPU seconds of a whole process with nanosecond resolution. The kernel derives the clock id from
    the pid (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def meminfo_bytes(key):
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def rollup(pid):
    """Returns RSS and PSS from smaps_rollup, which counts pages exactly; the counters in statm lag behind on machines
    with several CPUs. For a process of a few megabytes, reading it costs almost nothing."""
    found = {}
    for line in read_text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(("Rss:", "Pss:")):
            found[line[:3]] = int(line.split()[1]) * 1024
    return found["Rss"], found["Pss"]


def parent_of(pid):
    return int(read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])


def us(ns, digits=1):
    return f"{ns / 1e3:.{digits}f} µs"


def spread(values, digits=1):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


# ---- one tick -----------------------------------------------------------------------------------

class Hold:
    """A tree of sleeping processes, sampled by both ebb and psutil."""

    def __init__(self, bench, processes):
        self.child = start([f"{bench}/tick", "--hold", str(processes)],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = int(self.child.stdout.readline())
        for _ in range(200):
            if len(psutil.Process(self.pid).children(recursive=True)) == processes - 1:
                return
            time.sleep(0.02)
        raise SystemExit("bench: the tree of processes did not come up")

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Engine:
    """Runs bench/engine in virtual time."""

    def __init__(self, bench, pid, folder):
        self.child = start([f"{bench}/engine", "virtual", str(pid), folder],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, order, count):
        self.child.stdin.write(f"{order} {count}\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Psutil:
    """Takes the same samples as ebb, in Python and with psutil."""

    def __init__(self, pid):
        self.root = psutil.Process(pid)
        self.kept = [self.root] + self.root.children(recursive=True)

    def known(self):
        return [p.memory_info().rss for p in self.kept]

    def known_and_machine(self):
        return self.known(), psutil.virtual_memory().available

    def follow(self):
        tree = [self.root] + self.root.children(recursive=True)
        return [p.memory_info().rss for p in tree]

    def follow_and_machine(self):
        return self.follow(), psutil.virtual_memory().available


LOOKS = ("known", "known_and_machine", "follow", "follow_and_machine")


def tick_blocks(bench, hold, scratch, rounds):
    """Runs blocks of ebb and of psutil alternately; returns the medians of each block."""
    engine = Engine(bench, hold.pid, tempfile.mkdtemp(dir=scratch))
    script = Psutil(hold.pid)
    blocks, pieces = [], {}
    for number in range(rounds + 1):
        a = engine.ask("ticks", 200)
        block = {"tick": median(a["tick_ns"]), "walk": median(a["walk_ns"]),
                 "mean": statistics.mean(a["tick_ns"]),
                 "ticks": a["tick_ns"], "processes": a["processes"],
                 "verdicts": a["verdicts"], "verdict_ns": a["verdict_ns"],
                 "counted": 200 * (number + 1), "on_machine": len(psutil.pids())}
        for look in LOOKS:
            work = getattr(script, look)
            block[look] = median(cpu_of(work) for _ in range(20))
        for name, ns in engine.ask("pieces", 100).items():
            pieces.setdefault(name, []).extend(ns if number else [])
        if number:  # The first block is a warm-up and is discarded.
            blocks.append(block)
    engine.close()
    return blocks, pieces


def tick_real(bench, hold, scratch, seconds):
    """ebb and psutil both sample once per second, as in real use, so that the CPU caches are cold."""
    folder = tempfile.mkdtemp(dir=scratch)
    child = start([f"{bench}/engine", "real", str(hold.pid), folder, str(seconds)],
                  stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)  # psutil samples half a second after the engine's tick.
    script = Psutil(hold.pid)
    looks = ("known_and_machine", "follow_and_machine")
    found = {look: [] for look in looks}
    due = time.monotonic()
    for i in range(seconds - 1):
        look = looks[i % 2]
        found[look].append(cpu_of(getattr(script, look)))
        due += 1
        time.sleep(max(0, due - time.monotonic()))
    answer = json.loads(child.communicate()[0])
    return answer, {look: median(ns) for look, ns in found.items()}


def tell_tick_alone(table, blocks, pieces):
    """Prints the cost of ebb's tick and of its parts, and psutil's cost for the same samples."""
    ticks = sorted(ns for b in blocks for ns in b["ticks"])
    of = {key: median(b[key] for b in blocks) for key in ("walk", "mean") + LOOKS}
    part = {name: median(ns) for name, ns in pieces.items()}
    clock = part["clock"]
    table.title(f"One tick of a tree of {blocks[0]['processes']} processes, back to back "
                f"({len(ticks)} ticks in {len(blocks)} blocks, in turns with psutil)")
    table.bar("ebb: the engine's tick, median", median(ticks) / 1e3, 60, "µs",
              note=f"p10 {us(ticks[len(ticks) // 10])}, p90 {us(ticks[len(ticks) * 9 // 10])}")
    for name, text in (("statm", "resident memory of all 21"),
                       ("status", "status of those whose turn it is"),
                       ("machine", "meminfo, PSI, the limit"),
                       ("bounds", "the bounds of the tree's memory"),
                       ("pass_on", "into the recording, the run and the verdict's series"),
                       ("peaks", "the peaks")):
        table.row(f"  of it: {text}", us(max(part[name] - clock, 0)),
                  f"mean {us(statistics.mean(pieces[name]) - clock)}" if name == "status" else "")
    table.row("ebb: the walk for births and deaths", us(of["walk"]),
              "apart; once a second (at 10 Hz: four times a second)")
    verdicts = blocks[-1]["verdicts"]
    if verdicts:
        table.row("ebb: a verdict on every series", us(blocks[-1]["verdict_ns"] / verdicts),
                  f"mean; in one tick of {blocks[-1]['counted'] / verdicts:.0f}, so in the mean "
                  f"tick of {us(of['mean'])} and not in the median")
    table.row("psutil a: RSS of 21 known processes", us(of["known"]), "Process objects kept")
    table.row("psutil b: a, and virtual_memory()", us(of["known_and_machine"]))
    table.row("psutil c: children(recursive), RSS of each", us(of["follow"]),
              f"reads every process of the machine: {blocks[-1]['on_machine']} here")
    table.row("psutil d: c, and virtual_memory()", us(of["follow_and_machine"]))


def tell_tick_ratios(table, blocks, statm_ns):
    def ratio(what, theirs, ours, is_bar, note):
        each = [theirs(b) / ours(b) for b in blocks]
        note = f"{note}; blocks {spread(each)}"
        if is_bar:
            table.bar(what, median(each), 20, "×", more_is_better=True, note=note)
        else:
            table.row(what, f"{median(each):.1f} ×", note)

    ratio("like for like: a / ebb's statm alone", lambda b: b["known"], lambda b: statm_ns, False,
          "the same files read")
    ratio("like for like: b / ebb's tick", lambda b: b["known_and_machine"],
          lambda b: b["tick"], True, "ebb's also has status, PSI, limit, recording")
    ratio("like for like: d / ebb's tick + walk", lambda b: b["follow_and_machine"],
          lambda b: b["tick"] + b["walk"], True, "both follow the tree")
    ratio("unlike: d / ebb's tick alone", lambda b: b["follow_and_machine"],
          lambda b: b["tick"], False, "what a script does / what ebb does, walk apart")


def tell_tick_in_use(table, real, slow):
    tick, walk = median(real["tick_ns"]), median(real["walk_ns"])
    table.title("The same once a second, as in use: caches are cold "
                f"({len(real['tick_ns'])} ticks, psutil half a second later)")
    table.bar("ebb: the engine's tick, median", tick / 1e3, 60, "µs",
              note=f"{us(min(real['tick_ns']))} to {us(max(real['tick_ns']))}")
    table.row("ebb: the walk", us(walk))
    table.row("psutil b", us(slow["known_and_machine"]))
    table.row("psutil d", us(slow["follow_and_machine"]))
    table.bar("like for like: b / ebb's tick", slow["known_and_machine"] / tick, 20, "×",
              more_is_better=True)
    table.bar("like for like: d / ebb's tick + walk", slow["follow_and_machine"] / (tick + walk),
              20, "×", more_is_better=True)
    return {"tick_ns": tick, "walk_ns": walk, **slow}


def part_tick(table, options):
    say("tick: blocks of ebb and psutil in turns")
    hold = Hold(options.bench, 21)
    try:
        blocks, pieces = tick_blocks(options.bench, hold, options.scratch, 12)
        say("tick: once a second")
        real, slow = tick_real(options.bench, hold, options.scratch, 40)
    finally:
        hold.close()
    part = {name: median(ns) for name, ns in pieces.items()}
    tell_tick_alone(table, blocks, pieces)
    tell_tick_ratios(table, blocks, part["statm"] - part["clock"])
    return {"blocks": [{k: v for k, v in b.items() if k != "ticks"} for b in blocks],
            "pieces_ns": part,
            "pieces_mean_ns": {name: statistics.mean(ns) for name, ns in pieces.items()},
            "real": tell_tick_in_use(table, real, slow)}


# ---- a job under ebb run ------------------------------------------------------------------------

class Run:
    """Runs bench/crowd under `ebb run`; finds the three processes of ebb."""

    def __init__(self, options, processes, seconds, interval):
        self.folder = os.path.join(tempfile.mkdtemp(dir=options.scratch), "run")
        self.child = start(
            [options.ebb, "run", "--json", "--interval", interval, "--run-dir", self.folder, "--",
             f"{options.bench}/crowd", str(processes), str(seconds)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.began = time.monotonic()
        self.supervisor = self.wait_for_supervisor()
        self.pids = {"supervisor": self.supervisor, "sentinel": parent_of(self.supervisor),
                     "client": self.child.pid}

    def wait_for_supervisor(self):
        for _ in range(500):
            try:
                return json.loads(read_text(f"{self.folder}/run.json"))["supervisor_pid"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.01)
        raise SystemExit("bench: ebb run did not start")

    def cpu_s(self):
        return {name: cpu_clock_of(pid) for name, pid in self.pids.items()}

    def finish(self):
        self.child.communicate()
        return json.loads(read_text(f"{self.folder}/run.json"))

    def trace_bytes(self):
        return os.path.getsize(f"{self.folder}/trace.ebb")


def slope_per_min(points):
    """Returns the slope of the least-squares line through POINTS (seconds, bytes)."""
    return statistics.linear_regression([t for t, _ in points], [v for _, v in points]).slope * 60


def part_memory(table, options):
    seconds = 600 if options.long else 75
    say(f"memory: 100 processes at 10 Hz for {seconds} s")
    run = Run(options, 100, seconds, "100ms")
    points, total_pss = [], 0
    while True:
        at = time.monotonic() - run.began
        if at > seconds - 1:
            break
        points.append((at, rollup(run.supervisor)[0]))
        total_pss = max(total_pss, sum(rollup(pid)[1] for pid in run.pids.values()))
        time.sleep(1)
    others = {name: rollup(pid)[0] for name, pid in run.pids.items() if name != "supervisor"}
    doc = run.finish()
    most = max(v for _, v in points)
    early = points[min(2, len(points) - 1)][1]
    minute = next((v for t, v in points if t >= 60), points[-1][1])
    late = [(t, v) for t, v in points if t >= seconds / 2]
    table.title(f"ebb's own memory, recording 100 processes at 10 Hz for {seconds} s "
                "(half of them working, one birth and death a second)")
    table.bar("supervisor (the one that records): most RSS", most / 1e6, 10, "MB", digits=2,
              note=f"after 2 s {early / 1e6:.2f}, after 60 s {minute / 1e6:.2f}, "
                   f"at the end {points[-1][1] / 1e6:.2f} MB")
    if options.long:
        table.bar("flat: most of the last half over most of the first",
                  (max(v for _, v in late) - max(v for t, v in points if t < seconds / 2)) / 1e3,
                  100, "kB", digits=0,
                  note=f"slope over the last half {slope_per_min(late) / 1e3:+.1f} kB a minute")
    else:
        table.row("slope over the last half", f"{slope_per_min(late) / 1e3:+.0f} kB a minute",
                  "the first block is sealed in it; make bench-long says whether it is flat")
    table.row("client, sentinel: RSS", " + ".join(f"{others[n] / 1e6:.2f}"
                                                  for n in ("client", "sentinel")) + " MB",
              f"all three with shared pages counted once (PSS): {total_pss / 1e6:.2f} MB")
    table.row("CPU of the supervisor", f"{doc['cost']['cpu_permyriad'] / 100:.2f} % of one",
              f"{doc['cost']['ticks']} ticks")
    samples = doc["cost"]["ticks"] * 100
    table.row("its recording", f"{run.trace_bytes() / 1e3:.0f} kB",
              f"{run.trace_bytes() / samples:.2f} bytes a process and sample")
    return {"seconds": seconds, "points": points, "others": others, "pss": total_pss,
            "cost": doc["cost"], "trace_bytes": run.trace_bytes()}


# ---- stalls of the job ---------------------------------------------------------------------------

def part_stall(table, options):
    gib = 8 if meminfo_bytes("MemAvailable") > 12 << 30 else 4
    say(f"stall: {gib} GiB")
    child = start([f"{options.bench}/stall", str(gib), "8", "2000"], stdout=subprocess.PIPE,
                  text=True)
    out = child.communicate()[0]
    if child.returncode:
        raise SystemExit(f"bench: stall ended with status {child.returncode}")
    doc = json.loads(out.strip().splitlines()[-1])
    less = "" if gib == 8 else " (the bar says 8: too little memory is available here)"
    table.title(f"What a job of {gib} GiB in 4 KiB pages feels{less}: mmap, touch, munmap in a "
                "loop; 8 blocks of 2 s each, in turns with nothing")

    def added(kind, look, column):
        return (doc[kind][look][column] - doc[kind]["nothing"][column]) / 1e3

    for kind, what in (("as it was", "as it was"), ("locks", "less waiting for a CPU")):
        base = doc[kind]["nothing"]
        table.bar(f"p99.9 of rounds, {what}: ebb adds", added(kind, "ebb", "p99.9"), 5, "ms",
                  digits=3, note=f"nothing: {base['p99.9'] / 1e3:.3f}; "
                                 f"smaps_rollup adds {added(kind, 'smaps_rollup', 'p99.9'):.3f}")
        table.bar(f"p99.9 of time, {what}: ebb adds", added(kind, "ebb", "time p99.9"), 5, "ms",
                  digits=3, note=f"nothing: {base['time p99.9'] / 1e3:.3f}; smaps_rollup adds "
                                 f"{added(kind, 'smaps_rollup', 'time p99.9'):.3f}")
    most = doc["locks"]
    table.row("longest round, less waiting for a CPU", f"{most['ebb']['max'] / 1e3:.1f} ms",
              f"nothing {most['nothing']['max'] / 1e3:.1f}, smaps_rollup "
              f"{most['smaps_rollup']['max'] / 1e3:.1f}; ebb without its pauses "
              f"{most['ebb flat out']['max'] / 1e3:.1f} ms")
    return doc


# ---- the recording ------------------------------------------------------------------------------

def part_trace(table, options):
    say("trace: size and reading back")
    out = subprocess.run([f"{options.bench}/trace_size"], check=True, stdout=subprocess.PIPE,
                         text=True).stdout
    docs = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    day = next(d for d in docs if d["name"].startswith("24 h"))
    table.title("The recording: " + day["name"] + ", every active process moving by ±0.1 % a tick")
    table.bar("size", day["bytes"] / 1e6, 5, "MB", digits=2,
              note=f"{day['bytes_per_sample']:.2f} bytes a process and sample")
    table.bar("read back, wall time", day["read_wall_s"], 1, "s", digits=3,
              note=f"{day['read_cpu_s']:.3f} s of CPU, {day['rows']} rows")
    table.row("written", f"{day['tick_us']:.1f} µs a tick", "sealing and compressing included")
    return docs


# ---- ebb run ------------------------------------------------------------------------------------

def timed(command, folder=None):
    """Returns the milliseconds (wall time) from the start of the command to the program's main, and from there to the
    exit of ebb."""
    began = time.monotonic_ns()
    out = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    ended = time.monotonic_ns()
    if folder:
        shutil.rmtree(folder)
    reached = int(out.stdout)
    return (reached - began) / 1e6, (ended - reached) / 1e6


def part_run(table, options):
    say("run: start and end")
    stamp = f"{options.bench}/stamp"
    folder = os.path.join(tempfile.mkdtemp(dir=options.scratch), "run")
    ways = {"alone": ([stamp], None),
            "no-record": ([options.ebb, "run", "-q", "--no-record", "--", stamp], None),
            "recorded": ([options.ebb, "run", "-q", "--run-dir", folder, "--", stamp], folder)}
    found = {way: [] for way in ways}
    for _ in range(60):
        for way, (command, made) in ways.items():
            found[way].append(timed(command, made))
    start = {way: median(x[0] for x in rows) for way, rows in found.items()}
    end = {way: median(x[1] for x in rows) for way, rows in found.items()}
    table.title("What ebb run costs (wall time, medians of 60, in turns with fork + exec alone)")
    for way, text in (("no-record", "--no-record"), ("recorded", "recorded")):
        table.row(f"until main is reached, {text}: added", f"{start[way] - start['alone']:.1f} ms",
                  f"{start[way]:.1f}; fork + exec alone {start['alone']:.1f}")
        table.row(f"from there to the end of it all, {text}: added",
                  f"{end[way] - end['alone']:.1f} ms", f"{end[way]:.1f}; alone {end['alone']:.1f}")

    say("run: CPU at 1 Hz and 10 Hz")
    runs = {"1 Hz": Run(options, 21, 34, "1s"), "10 Hz": Run(options, 21, 34, "100ms")}
    time.sleep(2)
    before = {name: (time.monotonic(), run.cpu_s()) for name, run in runs.items()}
    time.sleep(28)
    shares = {}
    for name, run in runs.items():
        at, cpu = before[name]
        wall, now = time.monotonic() - at, run.cpu_s()
        shares[name] = {key: (now[key] - cpu[key]) / wall for key in cpu}
    for name, run in runs.items():
        run.finish()
        s = shares[name]
        table.row(f"CPU at {name}, 21 processes, unique memory on",
                  f"{s['supervisor'] * 100:.3f} % of one",
                  f"client and sentinel {(s['client'] + s['sentinel']) * 100:.4f} %")
    return {"start_ms": start, "end_ms": end, "cpu_share": shares}


# ---- the job's output ---------------------------------------------------------------------------

def piped(command, between=""):
    """Runs COMMAND and reads its output from a pipe. Returns the wall time, and the CPU time of all its processes, in
    seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["sh", "-c", f"{shlex.join(command)} {between} | cat >/dev/null"], check=True,
                   stdin=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def part_output(table, options):
    rounds, gib = 7, 2
    say(f"output: {gib} GiB through a pipe")
    job = ["head", "-c", f"{gib}G", "/dev/zero"]
    folder = os.path.join(tempfile.mkdtemp(dir=options.scratch), "run")
    log = os.path.join(options.scratch, "log")
    ways = {"alone": (job,),
            "no-record": ([options.ebb, "run", "-q", "--no-record", "--", *job],),
            "recorded": ([options.ebb, "run", "-q", "--run-dir", folder, "--", *job],),
            "tee": (job, f"| tee {shlex.quote(log)}")}
    found = {way: [] for way in ways}
    for _ in range(rounds):
        for way, command in ways.items():
            found[way].append(piped(*command))
            shutil.rmtree(folder, ignore_errors=True)
            pathlib.Path(log).unlink(missing_ok=True)
    table.title(f"The job's output: {gib} GiB through a pipe to cat, in turns with the same without "
                f"ebb, medians of {rounds}")

    def in_turns(way):
        ratios = [b[0] / a[0] for a, b in zip(found["alone"], found[way])]
        cpu = median(x[1] for x in found[way]) / median(x[1] for x in found["alone"])
        return ratios, f"{spread(ratios, 2)}; CPU {cpu:.2f} times as much"

    wall, cpu = ([x[i] for x in found["alone"]] for i in (0, 1))
    table.row("alone", f"{median(wall):.2f} s", f"{spread(wall, 2)}; CPU {median(cpu):.2f} s")
    for way, text in (("no-record", "--no-record"), ("recorded", "recorded, log.txt included")):
        ratios, note = in_turns(way)
        table.bar(f"wall time, {text}: times as long", median(ratios), 1.5, "", digits=2, note=note)
    ratios, note = in_turns("tee")
    table.row("the same alone, with a log by tee: times as long", f"{median(ratios):.2f}", note)
    return found


# ---- all ----------------------------------------------------------------------------------------

def facts():
    return {"kernel": platform.release(), "arch": platform.machine(), "cpus": os.cpu_count(),
            "memory_gib": round(meminfo_bytes("MemTotal") / 2**30, 1),
            "python": platform.python_version(), "psutil": psutil.__version__,
            "load_at_start": os.getloadavg()[0]}


def parse(argv):
    build = os.environ.get("EBB_BUILD_DIR", "build")
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--json", action="store_true", help="print everything as one JSON document")
    p.add_argument("--long", action="store_true", help="ten minutes of recording in `memory`")
    p.add_argument("--only", metavar="PARTS", default=",".join(PARTS),
                   help="some of: " + ", ".join(PARTS))
    p.add_argument("--build", default=build, help="the build folder (%(default)s)")
    return parsed(p, argv, PARTS, "engine", "make bench")


def parsed(p, argv, parts, program, maker):
    """Parses ARGV. Returns the options, with --only as a list of PARTS, and with absolute folders. MAKER is the make
    target that builds PROGRAM in the folder bench/ of the build."""
    options = p.parse_args(argv)
    options.only = options.only.split(",")
    for part in options.only:
        if part not in parts:
            p.error(f"there is no part {part!r}; there are {', '.join(parts)}")
    options.build = os.path.abspath(options.build)
    options.bench = f"{options.build}/bench"
    options.ebb = os.environ.get("EBB_BINARY", f"{options.build}/ebb")
    if not os.access(f"{options.bench}/{program}", os.X_OK):
        p.error(f"{options.bench}/{program} does not exist; {maker} builds it")
    return options


def measure(options, run_parts, libraries=()):
    """Calls RUN_PARTS(table, options), which returns the results by part, and prints the table. The first line contains
    the versions of LIBRARIES (keys of facts())."""
    machine, began, table = facts(), time.monotonic(), Table()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The scratch folder is in the build folder, so that recordings are written to a disk and not to a tmpfs.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.build) as options.scratch:
        try:
            results = run_parts(table, options)
        finally:
            end_all()
    machine["load_at_end"] = os.getloadavg()[0]
    if options.json:
        json.dump({"machine": machine, "rows": table.rows, "results": results}, sys.stdout)
        print()
        return 0
    versions = ", ".join(f"{name} {machine[name.lower()]}" for name in libraries)
    print(f"kernel {machine['kernel']} {machine['arch']}, {machine['cpus']} CPUs, "
          f"{machine['memory_gib']} GiB; {versions + '; ' if versions else ''}"
          f"load {machine['load_at_start']:.1f} at the start, {machine['load_at_end']:.1f} at the "
          f"end; {time.monotonic() - began:.0f} s")
    print(table.text())
    bars = [r for r in table.rows if "held" in r]
    print(f"\n{sum(r['held'] for r in bars)} of {len(bars)} requirements met")
    return 0


def run_parts(table, options):
    return {part: globals()[f"part_{part}"](table, options) for part in PARTS if part in options.only}


def main(argv):
    return measure(parse(argv), run_parts, ("Python", "psutil"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
