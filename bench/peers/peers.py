#!/usr/bin/env python3
"""Compares ebb with other tools on the same programs of the zoo and prints one table.

    bench/peers/peers.py [--quick] [--rounds N] [--jobs N] [--lanes N] [--wheels DIR] [--python PYTHON]
                         [--only TOOL[,TOOL]] [--programs NAME[,NAME]] [--within S] [--json FILE]

Each tool runs each program in two ways. The first run spreads its steps over some seconds and gives the tool's
report, verdict, memory and files. The second run has no pauses; it alternates with the plain program, to measure the
cost. With --lanes, several programs run at a time, each on its own CPUs. The table names tools that cannot be
installed or do not finish. --wheels takes the tools' packages from a folder (default: the package index).
"""

import argparse
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.append(f"{ROOT}/zoo")
# pylint: disable=wrong-import-position
import command as shared  # noqa: E402
import install  # noqa: E402
import reports  # noqa: E402
import survival  # noqa: E402
import tools  # noqa: E402

# The programs, each with the option that selects its variant: a leak of Python objects, a leak in a C library, benign
# growth, and a leak at evaluations.
PROGRAMS = {"logger_table": [], "c_buffer": [], "lazy_images": [], "eval_logits": ["--leak"]}
QUICK = ("c_buffer", "lazy_images")
LOOK_MS = 200
SLOW = 4  # A tool that is slower than the plain program by this factor is not run again.
NOT_HERE = 77  # Exit status of a zoo program that cannot run here.
MB = 1e6
REPORT_BYTES = 4 << 20
LOCK = threading.Lock()
HEAD = ["tool", "CPU ×", "wall ×", "memory", "disk", "row of the line", "verdict", "right", "job"]


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def machine_facts():
    system, memory = os.uname(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"kernel": system.release, "arch": system.machine, "cpus": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1), "load_at_start": os.getloadavg()[0]}


def truth_of(name, flags):
    with open(f"{ROOT}/zoo/{name}/truth.json", encoding="utf-8") as file:
        truth = json.load(file)
    return truth["twin"] if flags else truth


def plain_env(folder):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("EBB_", "MALLOC_", "LD_PRELOAD", "PYTHON"))}
    return {**env, "ZOO_COUNTS": f"{folder}/../counts", "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder)
               for name in names)


def run_once(options, tool, program, seconds, look_ms, read=None, lane=None):
    """Returns the keeper's record of one run, and the result of READ, which is called with the run's folder. LANE is
    the set of CPUs to use."""
    name, flags = program
    with tempfile.TemporaryDirectory(dir=options.scratch) as outer:
        folder, kept = f"{outer}/out", f"{outer}/kept.json"
        os.mkdir(folder)
        line = [f"zoo/{name}/main.py", *flags, "--size", "small", "--seconds", str(seconds)]
        command = [sys.executable, f"{HERE}/keeper.py", "--out", kept, "--deadline",
                   str(options.deadline), "--look-ms", str(look_ms), "--",
                   *tool.command(options.python, folder, line)]
        with open(f"{outer}/log", "w+", encoding="utf-8", errors="replace") as log:
            shared.call(command, env=plain_env(folder), cwd=ROOT, stdout=log, stderr=log,
                        preexec_fn=lane and (lambda: os.sched_setaffinity(0, lane)))
            log.seek(0)
            last = (log.read().strip().splitlines() or [""])[-1]
        found = reports.read_json(kept)
        if options.reports and read:
            keep_reports(outer, f"{options.reports}/{name}-{tool.name.replace(' ', '')}")
        found.update(disk_bytes=folder_bytes(folder), failed=failure(options, found, last))
        if read and not found["failed"]:
            read(folder, found)
        return found


def keep_reports(outer, target):
    """Copies the tool's output and files, except large files."""
    def large(folder, names):
        return [name for name in names if os.path.isfile(f"{folder}/{name}")
                and os.path.getsize(f"{folder}/{name}") > REPORT_BYTES]

    shutil.copytree(outer, target, ignore=large, dirs_exist_ok=True)


def failure(options, found, last):
    """Returns the reason why the job did not finish, or None."""
    if found["timed_out"]:
        return f"not over after {options.deadline:g} s, and ended"
    if found["status"] == NOT_HERE:
        return f"this machine cannot run it: {last[:80]}"
    return f"status {found['status']}: {last[:80]}" if found["status"] else None


def answer(options, tool, program):
    """Runs the program once at the given pace and reads the tool's report."""
    truth = truth_of(*program)

    def read(folder, found):
        try:
            if tool.rows:
                found["rows"] = tool.rows(options, folder)
                found["row"] = reports.culprit_row(found["rows"], truth)
            if tool.verdict:
                found["right"], found["word"] = tool.verdict(options, folder, truth)
        except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
            found["unread"] = f"{type(error).__name__}: {error}"[:100]

    say(f"what {tool.name} says of {program[0]}")
    return run_once(options, tool, program, options.seconds, LOOK_MS, read)


def answers(options, all_tools, programs):
    """Returns {(tool, program): result}. Up to JOBS runs are in progress at the same time, because nothing is timed."""
    asked = [(tool, program) for program in programs for tool in all_tools if not tool.why]
    # Slow tools start first, so that none of them runs alone at the end.
    asked.sort(key=lambda pair: not pair[0].is_slow)
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda pair: answer(options, *pair), asked))
    return {(tool.name, program[0]): each for (tool, program), each in zip(asked, found)}


def lanes(options):
    """Returns a list with a set of adjacent CPUs for each lane. For a single lane the list is [None]: the kernel
    chooses the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    width = len(cpus) // options.lanes
    if options.lanes < 2 or not width:
        return [None]
    return [set(cpus[i * width:(i + 1) * width]) for i in range(options.lanes)]


def costs(options, all_tools, programs, said, keep):
    """Returns {(tool, program): [(CPU ratio, wall ratio)]}, relative to the plain run of the same round. Calls KEEP
    with all results so far after each run."""
    ratios, slow, free = {}, set(), queue.SimpleQueue()
    for lane in lanes(options):
        free.put(lane)

    def one_program(turn, program):
        lane = free.get()
        say(f"round {turn + 1} of {options.rounds}, {program[0]}")
        timed = [tool for tool in all_tools if tool.is_timed and not tool.why
                 and not said[tool.name, program[0]]["failed"] and (tool.name, program[0]) not in slow]
        for tool, ratio in one_round(options, timed, program, lane):
            ratios.setdefault((tool.name, program[0]), []).append(ratio)
            if ratio[1] > SLOW:
                slow.add((tool.name, program[0]))
            keep(ratios)
        free.put(lane)

    with ThreadPoolExecutor(free.qsize()) as pool:
        for turn in range(options.rounds):
            list(pool.map(lambda program, turn=turn: one_program(turn, program), programs))
    return ratios


def one_round(options, timed, program, lane):
    """Returns (tool, (CPU ratio, wall ratio)) for each run in TIMED, whose first entry is the plain run."""
    plain = None
    for tool in timed:
        if options.within and time.monotonic() - options.began > options.within:
            say(f"{options.within:g} s are over: {tool.name} is not timed")
            continue
        found = run_once(options, tool, program, 0, 0, lane=lane)
        plain = plain or found
        if not found["failed"] and not plain["failed"]:
            yield tool, (found["cpu_s"] / plain["cpu_s"], found["wall_s"] / plain["wall_s"])


def spread(values):
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.2f}–{max(values):.2f}]"


def row_of(tool, program, said, ratios):
    """Returns the cells of a table row."""
    if tool.why:
        return [tool.name, "–", "–", "–", "–", "–", "–", "–", f"not run: {tool.why}"]
    found, plain = said[tool.name, program], said["plain", program]
    if found["failed"]:
        return [tool.name, "–", "–", "–", "–", "–", "–", "–", found["failed"]]
    timed = ratios.get((tool.name, program))
    unread = found.get("unread")
    return [tool.name, *([spread(side) for side in zip(*timed)] if timed else ["–", "–"]),
            f"{(found['peak_bytes'] - plain['peak_bytes']) / MB:+.0f} MB",
            f"{found['disk_bytes'] / MB:.2f} MB",
            "–" if not tool.rows else str(found.get("row") or "none"),
            found.get("word", "–"), found.get("right", "–"),
            f"ended well; its report is not available: {unread}" if unread else "ended well"]


def print_all(all_tools, programs, said, ratios):
    for name, flags in programs:
        truth, plain = truth_of(name, flags), said["plain", name]
        print(f"\n{' '.join([name, *flags])}: {truth['why']}")
        print(f"    truth: {'a leak' if truth['leak'] else 'no leak'}, in {truth['culprit']['function']}; "
              f"alone: {plain['peak_bytes'] / MB:.0f} MB; timed in {len(ratios.get(('plain', name), []))} rounds")
        if plain["failed"]:
            print(f"    left out: {plain['failed']}")
            continue
        shared.print_table([HEAD] + [row_of(tool, name, said, ratios) for tool in all_tools
                                     if tool.name != "plain"], indent="    ")


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--quick", action="store_true", help="two programs, one round, no survival")
    p.add_argument("--rounds", type=shared.count, default=2, metavar="N", help="of what is timed (%(default)s)")
    p.add_argument("--jobs", type=shared.count, default=max(1, (os.cpu_count() or 1) // 2), metavar="N",
                   help="at once, of what is not timed (%(default)s)")
    p.add_argument("--lanes", type=shared.count, default=1, metavar="N",
                   help="programs that are timed at once, each on its share of the CPUs (%(default)s)")
    p.add_argument("--seconds", type=float, default=10, metavar="S",
                   help="over which the steps are spread when tools are asked (%(default)s)")
    p.add_argument("--deadline", type=float, default=90, metavar="S", help="for one run (%(default)s)")
    p.add_argument("--within", type=float, metavar="S", help="begin no timed run after that long")
    p.add_argument("--wheels", metavar="DIR", help="packages of the peers, instead of the network")
    p.add_argument("--python", help="one with torch, transformers, numpy and pillow")
    p.add_argument("--only", metavar="TOOLS", help="some tools, as the table names them")
    p.add_argument("--programs", default=",".join(PROGRAMS), metavar="NAMES", help="of the zoo (%(default)s)")
    p.add_argument("--no-survival", action="store_true", help="leave out the limits and guards")
    p.add_argument("--reports", metavar="DIR", help="keep what the tools wrote, but for large files")
    p.add_argument("--json", metavar="FILE", help="also write every number into this file")
    p.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"), metavar="DIR",
                   help="of ebb, and where the peers are installed (%(default)s)")
    options = p.parse_args(argv)
    if options.quick:
        options.rounds, options.programs, options.no_survival = 1, ",".join(QUICK), True
    for name in options.programs.split(","):
        if name not in PROGRAMS:
            p.error(f"there is no program {name!r}; there are {', '.join(PROGRAMS)}")
    options.build = os.path.abspath(options.build)
    options.ebb = os.path.abspath(os.environ.get("EBB_BINARY", f"{options.build}/ebb"))
    names = [tool.name for tool in tools.all_tools(options, {})]
    for name in options.only.split(",") if options.only else []:
        if name not in names:
            p.error(f"there is no tool {name!r}; there are {', '.join(names)}")
    if not os.access(options.ebb, os.X_OK):
        p.error(f"there is no {options.ebb}; make builds it, and EBB_BINARY names another one")
    zoo = f"{options.build}/zoo-venv/bin/python"
    options.base = (options.python or os.environ.get("ZOO_PYTHON")
                    or (zoo if os.path.exists(zoo) else shutil.which("python3")))
    if not install.has(options.base, "torch"):
        p.error(f"{options.base} has no torch; zoo/setup.sh makes {zoo}, --python names another one")
    return options


def chosen_tools(options, missing):
    known = tools.all_tools(options, missing)
    wanted = options.only.split(",") if options.only else None
    return [tool for tool in known if not wanted or tool.name in ("plain", *wanted)]


def named(found):
    return {" ".join(key): value for key, value in found.items()}


def keep(options, kept, **more):
    """Writes all results so far."""
    with LOCK:
        kept.update(more)
        if options.json:
            with open(f"{options.json}.new", "w", encoding="utf-8") as file:
                json.dump(kept, file, indent=1)
            os.replace(f"{options.json}.new", options.json)


def main(argv):
    options = parse(argv)
    options.began, machine = time.monotonic(), machine_facts()
    options.python, missing = install.install(options.base, f"{options.build}/peers-venv", options.wheels)
    all_tools = chosen_tools(options, missing)
    programs = [(name, PROGRAMS[name]) for name in options.programs.split(",")]
    survived = None if options.no_survival else survival.begin(options)
    kept = {"machine": machine}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.build) as options.scratch:
        said = answers(options, all_tools, programs)
        survived = survived and survived.result()
        keep(options, kept, survival=survived, said=named(said))
        ratios = costs(options, all_tools, programs, said,
                       lambda ratios: keep(options, kept, ratios=named(ratios)))
    print(f"kernel {machine['kernel']} {machine['arch']}, {machine['cpus']} CPUs, "
          f"{machine['memory_gib']} GiB; load {machine['load_at_start']:.1f} at the start, "
          f"{os.getloadavg()[0]:.1f} at the end; {time.monotonic() - options.began:.0f} s")
    print_all(all_tools, programs, said, ratios)
    if survived:
        survival.print_rows(survived)
    return 0


if __name__ == "__main__":
    shared.end_with(lambda: main(sys.argv[1:]), "bench")
