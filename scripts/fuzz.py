#!/usr/bin/env python3
"""Runs the fuzz targets of a folder on their corpora and prints a table, one line per target.

    scripts/fuzz.py --seconds 30                 each target for 30 s
    scripts/fuzz.py --runs 10000000 --limit 500  each to 10 million executions, 500 s in all
    scripts/fuzz.py --pack fuzz.tar.gz           targets, corpora and this script, to run elsewhere

Exits with 1 when a target crashed, leaked, hung or used too much memory; the folder of --out has the failing inputs,
and its subfolder inputs/ has new inputs, which reach code that no input in the corpora reaches. `TARGET FILE` replays
one input.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SLICE_S = 20  # Number of seconds for which a worker runs a target before another target gets its turn.
ENVIRONMENT = {
    # Temporary files are kept in memory, because the server's fuzz target calls fsync often.
    "TMPDIR": "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp",
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:malloc_context_size=5:quarantine_size_mb=64",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class Target:
    name: str
    program: str
    corpus: str
    out: str
    executions: int = 0
    cpu_s: float = 0.0
    is_done: bool = False
    added: int = 0
    peak_mib: int = 0
    coverage: int = 0
    workers: int = 0
    failures: list = field(default_factory=list)

    def inputs(self):
        return os.path.join(self.out, "inputs")

    def line(self):
        rate = self.executions / self.cpu_s if self.cpu_s else 0
        return (f"{self.name:<16} {self.executions:>12} {rate:>9.0f} {self.added:>6} {self.coverage:>8} "
                f"{self.peak_mib:>9} {len(self.failures):>7}")


HEADING = (f"{'target':<16} {'executions':>12} {'per CPU s':>9} {'added':>6} {'coverage':>8} "
           f"{'peak MiB':>9} {'crashes':>7}")


def find_targets(arguments):
    targets = []
    for program in sorted(glob.glob(os.path.join(arguments.targets, "fuzz_*"))):
        name = os.path.basename(program).removeprefix("fuzz_")
        if not os.access(program, os.X_OK) or (arguments.only and name not in arguments.only):
            continue
        out = os.path.join(arguments.out or os.path.join(arguments.targets, "found"), name)
        targets.append(Target(name, os.path.abspath(program), os.path.join(arguments.corpus, name), out))
    missing = set(arguments.only) - {target.name for target in targets}
    if missing or not targets:
        sys.exit(f"fuzz: no target {', '.join(sorted(missing)) or 'fuzz_*'} in {arguments.targets}; make fuzz builds them")
    return targets


def stat(output, name):
    values = re.findall(rf"^stat::{name}:\s+(\d+)", output, re.MULTILINE)
    return int(values[-1]) if values else 0


def last(pattern, output):
    values = re.findall(pattern, output)
    return int(values[-1]) if values else 0


def run_once(target, runs, seconds, seed):
    """Runs one process of TARGET; returns its output, its exit status and its CPU time."""
    command = [target.program, target.inputs(), target.corpus, f"-runs={runs}", "-print_final_stats=1",
               f"-max_total_time={max(1, int(seconds))}", "-timeout=10", "-rss_limit_mb=2048",
               f"-artifact_prefix={target.out}/"]
    if seed:
        command.append(f"-seed={seed}")
    # Shared libraries that --pack adds to the archive.
    libraries = {"LD_LIBRARY_PATH": os.path.join(os.path.dirname(target.program), "lib")}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env=ENVIRONMENT | libraries | dict(os.environ))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return out.read().decode(errors="replace"), process.returncode, usage.ru_utime + usage.ru_stime


def record(target, output, status, cpu_s):
    target.executions += stat(output, "number_of_executed_units")
    target.added += stat(output, "new_units_added")
    target.cpu_s += cpu_s
    target.is_done = True
    target.peak_mib = max(target.peak_mib, stat(output, "peak_rss_mb"))
    target.coverage = max(target.coverage, last(r" cov: (\d+)", output))
    if status != 0:  # libFuzzer's progress lines, which are not shown.
        target.failures.append(re.sub(r"^#\d+\t.*\n", "", output, flags=re.MULTILINE))
    elif "INFO: seed corpus" not in output and "replayed" not in output:
        target.failures.append(f"fuzz: {target.corpus} has no seeds\n{output}")


class Pool:
    """Starts the workers. Each worker repeatedly picks a target and runs it: one with the fewest workers and, among
    these, the one with the fewest executions."""

    def __init__(self, targets, arguments):
        self.targets, self.arguments = targets, arguments
        self.lock = threading.Lock()
        self.end = time.monotonic() + arguments.limit

    def is_open(self, target):
        a = self.arguments
        if target.failures or time.monotonic() >= self.end:
            return False
        return target.executions < a.runs if a.runs else not target.is_done and target.workers == 0

    def take(self):
        with self.lock:
            waiting = [target for target in self.targets if self.is_open(target)]
            if not waiting:
                return None
            target = min(waiting, key=lambda t: (t.workers, t.executions))
            target.workers += 1
            return target

    def work(self):
        a = self.arguments
        while target := self.take():
            seconds = min(SLICE_S if a.runs else a.seconds, self.end - time.monotonic())
            output, status, cpu_s = run_once(target, a.runs - target.executions if a.runs else -1, seconds, a.seed)
            with self.lock:
                target.workers -= 1
                record(target, output, status, cpu_s)
                if target.workers == 0 and not self.is_open(target):
                    print(target.line(), flush=True)

    def run(self):
        for target in self.targets:
            # Removes inputs left by an earlier run.
            shutil.rmtree(target.inputs(), ignore_errors=True)
            os.makedirs(target.inputs())
        threads = [threading.Thread(target=self.work) for _ in range(self.arguments.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def pack(targets, arguments):
    """Packs all that is needed for a long run on another machine into one archive. Debug information is stripped."""
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(arguments.pack, "w:gz") as archive:
        for target in targets:
            name = os.path.basename(target.program)
            subprocess.run(["strip", "-g", "-o", f"{scratch}/{name}", target.program], check=True)
            archive.add(f"{scratch}/{name}", f"fuzz/{name}")
            archive.add(target.corpus, f"fuzz/corpus/{target.name}")
        # The server's fuzz target loads libwslay at run time.
        for library in glob.glob("/usr/lib/*/libwslay.so.?"):
            archive.add(os.path.realpath(library), f"fuzz/lib/{os.path.basename(library)}")
        archive.add(os.path.abspath(__file__), "fuzz/fuzz.py")
    print(f"tar xzf {os.path.basename(arguments.pack)} && cd fuzz && "
          "./fuzz.py --targets . --corpus corpus --runs 10000000 --limit 500")
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="build/clang/fuzz", help="folder of the built targets")
    parser.add_argument("--corpus", default=os.path.join(ROOT, "fuzz", "corpus"), help="folder of the corpora")
    parser.add_argument("--out", help="folder for crashes and new inputs (default: TARGETS/found)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this target; may be repeated")
    parser.add_argument("--seconds", type=float, default=10, help="for each target (default: 10)")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target, instead of --seconds")
    parser.add_argument("--limit", type=float, default=3600, help="total seconds (default: 3600)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations (default: random)")
    parser.add_argument("--pack", metavar="FILE", help="write targets, corpora and this script to FILE; run nothing")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    targets = find_targets(arguments)
    if arguments.pack:
        return pack(targets, arguments)
    print(HEADING, flush=True)
    Pool(targets, arguments).run()
    for target in targets:
        for output in target.failures:
            print(f"---- {target.name}; inputs in {target.out}:\n{output[-8000:].rstrip()}\n----", flush=True)
    return 1 if any(target.failures for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
