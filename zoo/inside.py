#!/usr/bin/env python3
"""Measures the share of ebb's own functions in the time of a program's steps.

    zoo/inside.py [PROGRAM]... [--rounds N] [--root FOLDER]...

This also works on busy machines, where the times of two equal runs differ by more than the cost of ebb. Each program
runs at full speed under `ebb run`. From its first step to its last, CPU clocks are read around the program's own marks
and around the hooks on optimizers and loaders. Scans of containers ("keepers") are counted separately. The profiler
measures the wall time of its samples. `chrt -r 1` in front of this command prevents other processes from interrupting
the program. Not included are cache misses that ebb causes in the program, the fast path of each allocation, and the
supervisor, whose CPU time is printed separately. --root names other checkouts; their programs and Python package are
measured alternately with those of this checkout.
"""

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ZOO = Path(__file__).resolve().parent
sys.path.append(str(ZOO))  # makes place.py and command.py importable
import command as shared
import place
from place import EBB, ROOT, interpreter

ROUNDS = 2
TIMED = ("marks", "hooks", "loaders")
PARTS = (*TIMED, "keepers", "profiler")


# ---- code that runs inside the job ----


class Clock:
    """Accumulates the time spent in functions."""

    def __init__(self):
        self.ns = dict.fromkeys(TIMED, 0)

    def around(self, part, function):
        def timed(*args, **keys):
            begin = time.thread_time_ns()
            result = function(*args, **keys)
            self.ns[part] += time.thread_time_ns() - begin
            return result

        return timed


def put_around_hooks(clock):
    """Wraps the hooks that ebb installs on modules imported by the program."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    hooks = optimizer._global_optimizer_post_hooks if optimizer else {}
    for key, hook in list(hooks.items()):
        hooks[key] = clock.around("hooks", hook)
    loaders = sys.modules.get("torch.utils.data.dataloader")
    for cell in (loaders._BaseDataLoaderIter.__next__.__closure__ if loaders else None) or ():
        if getattr(cell.cell_contents, "__name__", "") == "on_batch":
            cell.cell_contents = clock.around("loaders", cell.cell_contents)


def job(main, out):
    """Runs the program MAIN, and writes the measurements to OUT."""
    sys.path.insert(0, str(Path(main).parents[1]))
    import common

    clock, cpu = Clock(), []
    begin, end, marks = common.Job.begin, common.Job.end, common.Marks
    for name in {"step", "send"} & set(vars(marks)):
        setattr(marks, name, clock.around("marks", getattr(marks, name)))

    def timed_begin(self, *args, **keys):
        put_around_hooks(clock)
        begin(self, *args, **keys)
        clock.__init__()
        cpu.append(time.process_time_ns())

    def timed_end(self):
        cpu_ns = time.process_time_ns() - cpu[0]
        keepers = sys.modules.get("_ebb._containers") or sys.modules.get("ebb._containers")
        found = {"cpu_ns": time.process_time_ns(), "steps_cpu_ns": cpu_ns, "steps": self.step_now, "ns": clock.ns,
                 "keepers_ns": 1e9 * getattr(keepers, "_spent_s", 0)}
        Path(out).write_text(json.dumps(found))
        end(self)

    common.Job.begin, common.Job.end = timed_begin, timed_end
    sys.argv = [main, "--seconds", "0"]
    runpy.run_path(main, run_name="__main__")


# ---- code that starts the jobs ----


def measured(root, name, python):
    """Returns the result of one run, or None if the program cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        out, run_dir = Path(folder) / "found.json", Path(folder) / "run"
        # sets the shim's environment variables as ebb does, but for the Python package of the checkout ROOT
        command = [EBB, "run", "-q", "--run-dir", run_dir, "--no-shim", "--", "env", "EBB_SHIM=1",
                   f"PYTHONPATH={root / 'python' / 'ebb' / '_shim'}", python, __file__,
                   "--job", root / "zoo" / name / "main.py", out]
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not out.exists():
            return None
        heap = subprocess.run([EBB, "heap", "--json", run_dir], check=True, stdout=subprocess.PIPE).stdout
        found = json.loads(out.read_text())
        found["own_s"] = json.loads((run_dir / "run.json").read_text())["cost"]["cpu_s"]
        found["samples"], hook_s = (json.loads(heap)["cost"][key] for key in ("samples", "hook_s"))
        return {**found, "shares": shares(found, hook_s)}


def shares(found, hook_s):
    """Returns the cost of each part: of the profiler as a fraction of the whole program's CPU time, and of every other
    part as a fraction of the steps' CPU time."""
    ns = {**found["ns"], "keepers": found["keepers_ns"]}
    ns["hooks"] -= found["keepers_ns"]
    return {**{part: ns[part] / found["steps_cpu_ns"] for part in ns},
            "profiler": 1e9 * hook_s / found["cpu_ns"]}


def in_job(run):
    """Returns the sum of all costs except the container scans ("keepers"), which limit their own CPU time."""
    return sum(run["shares"][part] for part in PARTS if part != "keepers")


def line(title, runs):
    def middle(get):
        return statistics.median(map(get, runs))

    texts = [f"{part} {middle(lambda r, part=part: r['shares'][part]):.2%}" for part in PARTS]
    return (f"{title:32} step {middle(lambda r: r['steps_cpu_ns'] / r['steps']) / 1e6:5.2f} ms: {', '.join(texts)}; "
            f"without keepers {middle(in_job):.2%}; {middle(lambda r: r['samples']):.0f} samples; "
            f"the process that watches {middle(lambda r: r['own_s']):.3f} s")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--rounds", type=shared.count, default=ROUNDS, help="runs of each program (%(default)s)")
    parser.add_argument("--root", type=Path, action="append", help="another checkout (default: this one)")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = options()
    if args.job:
        job(*args.job)
        return 0
    place.need_ebb()
    names, roots, python = place.programs(args.programs), args.root or [ROOT], interpreter()
    found = {}
    for _ in range(args.rounds):
        for name in names:
            for root in roots:
                run = measured(root.resolve(), name, python)
                if run:
                    found.setdefault((root, name), []).append(run)
                else:
                    print(f"{name}: cannot run here", flush=True)
    for (root, name), runs in found.items():
        print(line(f"{root if len(roots) > 1 else ''} {name}", runs))
    for root in roots:
        each = [statistics.median(map(in_job, runs)) for (of, _), runs in found.items() if of == root]
        if each:
            print(f"{root}: {statistics.median(each):.2%} in the median of {len(each)} programs")
    return 0 if found else 1


if __name__ == "__main__":
    shared.end_with(main, "zoo")
