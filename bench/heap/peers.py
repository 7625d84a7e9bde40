"""Compares heap profilers on the same programs: runs the whole program under each profiler in turn, and prints the cost
relative to the plain program."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
# pylint: disable=wrong-import-position
from run import median, say  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 45
MB = 1e6
INTERVAL = 512 << 10


def find_library(name):
    found = sorted(glob.glob(f"/usr/lib/*/{name}") + glob.glob(f"/usr/lib64/{name}"))
    return found[0] if found else None


class Peer:
    """One way to run a Python program. LINES is true if the tool shows lines of Python source; WHY is the reason why
    the tool cannot run here."""

    def __init__(self, name, lines="no", before=(), options=(), env=None, why=None, not_on=()):
        self.name, self.lines, self.why = name, lines, why
        self.before, self.options, self.env = before, options, env or {}
        self.runs, self.failed = {}, {name: "takes minutes" for name in not_on}

    def command(self, python, folder, program):
        def fill(words):
            return [word.replace("FOLDER", folder) for word in words]
        return [*fill(self.before), python, *fill(self.options), *program]

    def once(self, options, name, units):
        with tempfile.TemporaryDirectory(dir=options.scratch) as outer:
            folder, report = f"{outer}/out", f"{outer}/report.json"
            os.mkdir(folder)
            program = [f"{HERE}/workloads.py", name, f"--units={units}", "--workers=0", f"--report={report}"]
            env = {**plain_env(), **{k: v.replace("FOLDER", folder) for k, v in self.env.items()}}
            with open(f"{outer}/log", "w", encoding="utf-8") as log:
                child = subprocess.Popen(self.command(options.python, folder, program), env=env, cwd=outer,
                                         start_new_session=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                cpu_s = wait(child)
            if cpu_s is None:
                self.failed[name] = f"not over within {PATIENCE_S} s"
                return
            if not os.path.exists(report):
                with open(f"{outer}/log", encoding="utf-8", errors="replace") as log:
                    self.failed[name] = (log.read().strip().splitlines() or ["no output"])[-1][:80]
                return
            with open(report, encoding="ascii") as file:
                found = json.load(file)
            found["all_cpu_s"] = cpu_s
            found["disk_bytes"] = folder_bytes(folder)
            self.runs.setdefault(name, []).append(found)

    def median(self, name, key):
        return median([run[key] for run in self.runs[name]])


def plain_env():
    return {key: value for key, value in os.environ.items()
            if not key.startswith(("EBB_", "MALLOC_", "TCMALLOC_", "LD_"))}


def wait(child):
    """Returns the CPU seconds of the process and its children, or None if it timed out and its session was killed."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        pid, _, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = 0
            return usage.ru_utime + usage.ru_stime
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return None


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def has_jemalloc_prof(path):
    said = subprocess.run(["true"], env={"LD_PRELOAD": path, "MALLOC_CONF": "prof:true"}, check=False,
                          capture_output=True, text=True).stderr
    return "Invalid conf" not in said


def peers(options):
    tcmalloc, jemalloc = find_library("libtcmalloc.so.4"), find_library("libjemalloc.so.2")
    memray = subprocess.run([options.python, "-c", "import memray"], capture_output=True, check=False).returncode == 0
    no_prof = "the packaged one has no profiling" if jemalloc and not has_jemalloc_prof(jemalloc) else None
    no_memray = None if memray else "not installed"
    no_tcmalloc, no_jemalloc = (None if path else "not installed" for path in (tcmalloc, jemalloc))
    return [
        Peer("plain"),
        Peer("ebb", "yes", [options.ebb, "run", "-q", "--no-shim", "-d", "FOLDER/run", "--"]),
        Peer("heaptrack", "no", ["heaptrack", "-o", "FOLDER/out"], why=None if shutil.which("heaptrack") else "not installed"),
        Peer("memray", "yes", options=["-m", "memray", "run", "-q", "-o", "FOLDER/out.bin"], why=no_memray),
        Peer("memray --native", "yes", options=["-m", "memray", "run", "--native", "-q", "-o", "FOLDER/out.bin"],
             why=no_memray),
        Peer("tracemalloc, 1 frame", "yes", options=["-X", "tracemalloc=1"]),
        Peer("tracemalloc, 25 frames", "yes", options=["-X", "tracemalloc=25"], not_on=("train",)),
        Peer("tcmalloc, not sampling", "–", env={"LD_PRELOAD": tcmalloc or ""}, why=no_tcmalloc),
        Peer("tcmalloc, 512 KiB", "no", env={"LD_PRELOAD": tcmalloc or "", "TCMALLOC_SAMPLE_PARAMETER": str(INTERVAL)},
             why=no_tcmalloc),
        Peer("jemalloc, not sampling", "–", env={"LD_PRELOAD": jemalloc or ""}, why=no_jemalloc),
        Peer("jemalloc, 512 KiB", "no", env={"LD_PRELOAD": jemalloc or "", "MALLOC_CONF":
             "prof:true,prof_active:true,lg_prof_sample:19,prof_final:true,prof_prefix:FOLDER/heap"},
             why=no_jemalloc or no_prof),
    ]


def ratios(peer, plain, name):
    return (peer.median(name, "wall_s") / plain.median(name, "wall_s"),
            peer.median(name, "cpu_s") / plain.median(name, "cpu_s"),
            peer.median(name, "all_cpu_s") / plain.median(name, "all_cpu_s"))


def row_of(table, peer, plain, name):
    if not peer.runs.get(name):
        table.row(f"{name}: {peer.name}", "not run", peer.why or peer.failed.get(name, ""))
        return None
    wall, cpu, all_cpu = ratios(peer, plain, name)
    extra = (peer.median(name, "peak_bytes") - plain.median(name, "peak_bytes")) / MB
    disk = peer.median(name, "disk_bytes") / MB
    table.row(f"{name}: {peer.name}", f"{wall:.2f} ×",
              f"CPU {cpu:.2f} ×, of all processes from the start {all_cpu:.2f} ×; {extra:+.1f} MB RSS; "
              f"{disk:.2f} MB on disk; Python lines: {peer.lines}")
    return wall, cpu


def ahead(table, all_peers, plain, name):
    """Prints a comparison of ebb with every tool that shows lines of Python source."""
    others = [p for p in all_peers if p.lines == "yes" and p.name != "ebb" and p.runs.get(name)]
    ours = next(p for p in all_peers if p.name == "ebb")
    if not others or not ours.runs.get(name):
        return
    best = min(others, key=lambda p: ratios(p, plain, name)[1])
    table.bar(f"{name}: ebb's CPU over that of the next with Python lines",
              ours.median(name, "cpu_s") / best.median(name, "cpu_s"), 1, "×", digits=2, note=best.name)


def part_peers(table, options):
    all_peers = peers(options)
    plain = all_peers[0]
    units = {"loop": 600, "train": 200} if not options.quick else {"loop": 200, "train": 60}
    rounds = 1 if options.quick else options.rounds
    for turn in range(rounds):
        for name, count in units.items():
            for peer in all_peers[turn % 2:] + all_peers[:turn % 2]:
                if peer.why is None and name not in peer.failed:
                    say(f"peers: round {turn + 1} of {rounds}, {name}, {peer.name}")
                    peer.once(options, name, count)
    table.title(f"Beside others: wall time of whole processes over that of the plain one ({rounds} in turns, medians)")
    for name in units:
        for peer in all_peers:
            row_of(table, peer, plain, name)
        ahead(table, all_peers, plain, name)
    return {peer.name: peer.runs for peer in all_peers}
