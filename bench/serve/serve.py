#!/usr/bin/env python3
"""Measures the server and prints one table: each measurement, its result, the required value, and whether it is met.

    bench/serve/serve.py [--json] [--only PART[,PART]] [--quick] [--build DIR]

Parts: start, jobs, memory, viewers, reads, file, kill. --quick uses a tenth of the jobs, kills and seconds. The exit
status is 0 even if a requirement is not met.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, HERE)
# pylint: disable=wrong-import-position
import kill  # noqa: E402
from run import measure, median, meminfo_bytes, read_text, say, start  # noqa: E402

PARTS = ("start", "jobs", "memory", "viewers", "reads", "file", "kill")
MIB, GIB = 1 << 20, 1 << 30
PATIENCE_S = 120


def settled(found, bound, limit_s=30):
    """Calls FOUND repeatedly until its result is at most BOUND, or LIMIT_S has passed, because connections and
    processes take a while to end. Returns the last result."""
    until = time.monotonic() + limit_s
    while found() > bound and time.monotonic() < until:
        time.sleep(0.1)
    return found()


def wait_for(what, found, limit_s=PATIENCE_S):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        value = found()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit(f"bench: {what}: not within {limit_s} s")


class Server:
    """A separate `ebb serve`; requests use its unix socket."""

    def __init__(self, options, *flags, name="state"):
        self.folder = os.path.join(options.scratch, name)
        ready = os.path.join(options.scratch, f"{name}.ready")
        if os.path.exists(ready):  # An earlier server may have left this file in the folder.
            os.unlink(ready)
        self.log = open(os.path.join(options.scratch, f"{name}.log"), "ab")
        self.process = start([options.ebb, "serve", "--state-dir", self.folder, "--listen", "127.0.0.1:0",
                              "--ready-file", ready, *flags], stderr=self.log, stdout=subprocess.DEVNULL)
        self.address = wait_for("the server", lambda: os.path.exists(ready) and read_text(ready).strip())
        self.port = int(re.search(r":(\d+)\D*$", self.address).group(1))
        self.http = kill.Connection(os.path.join(self.folder, "sock"), PATIENCE_S)

    @property
    def token(self):
        return read_text(os.path.join(self.folder, "token")).strip()

    def ask(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self.http.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"bench: {method} {path}: {answer.status} {text[:200]}")
        return json.loads(text)

    def submit(self, *command, **more):
        return self.ask("POST", "/jobs", {"command": list(command), **more})["id"]

    def job(self, number):
        return self.ask("GET", f"/jobs/{number}")

    def wait(self, number, state="ended", limit_s=PATIENCE_S):
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            job = self.ask("GET", f"/jobs/{number}?until={state}&timeout_s=30")
            if job["ended_s"] or job["state"] == state:
                return job
        raise SystemExit(f"bench: job {number} is not {state} after {limit_s} s")

    def memory(self):
        text = read_text(f"/proc/{self.process.pid}/status")
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) << 10

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        self.log.close()


def children_of_ebb():
    """Returns the sentinels and supervisors on this machine."""
    names = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            names.append(read_text(path).strip())
        except OSError:
            continue
    return sum(name.startswith(("ebb-sentinel", "ebb-supervisor")) for name in names)


def cgroups():
    return sum(len([d for d in folders if d.startswith("ebb-")])
               for _, folders, _ in os.walk("/sys/fs/cgroup", onerror=lambda _: None))


# ---- parts --------------------------------------------------------------------------------------

def fsync_s(folder):
    """Returns the duration of a small write and fdatasync in FOLDER; no commit there can be faster."""
    fd = os.open(os.path.join(folder, "fsync-probe"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        began = time.monotonic()
        os.write(fd, b"x" * 4096)
        os.fdatasync(fd)
        return time.monotonic() - began
    finally:
        os.close(fd)


def part_start(table, options):
    table.title("submit to the first instruction of the job")
    server = Server(options, "--slots", "1", name="start")
    stamp = os.path.join(options.build, "bench", "stamp")
    over, whole, waits = [], [], []
    for _ in range(30 if options.quick else 200):
        waits.append(fsync_s(server.folder))
        began = time.monotonic_ns()
        job = server.wait(server.submit(stamp, name="stamp"))
        reached = int(read_text(os.path.join(job["run_dir"], "log.txt")))
        whole.append((reached - began) / 1e6)
        over.append(whole[-1] - waits[-1] * 1e3)
    server.close()
    table.row("whole, median", f"{median(whole):.2f} ms", f"p90 {sorted(whole)[int(len(whole) * 0.9)]:.2f}")
    table.row("fdatasync of 4 KiB, median", f"{median(waits) * 1e3:.2f} ms", "interleaved")
    table.bar("over the fsync, median", median(over), 15, "ms", digits=2)
    return {"whole_ms": median(whole), "over_ms": median(over)}


def part_jobs(table, options):
    count = 1000 if options.quick else 10000
    table.title(f"{count:,} short jobs through one server")
    processes, groups = children_of_ebb(), cgroups()
    server = Server(options, "--slots", "4", "--keep", "200", name="jobs")
    for _ in range(50):  # Fills the caches of the server and its database.
        last = server.submit("/bin/true", name="warm", options={"no-heap": True, "no-shim": True})
    server.wait(last)
    time.sleep(2)
    before, files = server.memory(), server.files()
    began, high = time.monotonic(), before
    for i in range(count):
        last = server.submit("/bin/true", name=f"n{i % 7}", options={"no-heap": True, "no-shim": True})
        while i % 100 == 99 and server.ask("GET", "/machine")["room"]["queued"] > 200:
            time.sleep(0.05)
        high = max(high, server.memory()) if i % 500 == 0 else high
    server.wait(last, limit_s=1800)
    wait_for("the last jobs", lambda: not server.ask("GET", "/jobs?state=active&limit=1")["jobs"], 600)
    took = time.monotonic() - began
    wait_for("retention", lambda: len(os.listdir(os.path.join(server.folder, "runs"))) <= 210, 300)
    after = server.memory()
    ended = server.ask("GET", "/jobs?limit=500")["jobs"]
    table.row("jobs per second", f"{count / took:.1f}")
    table.row("succeeded, of the jobs still stored", f"{sum(j['state'] == 'succeeded' for j in ended)} of {len(ended)}")
    table.bar("growth of memory", (after - before) / MIB, 2, "MiB", digits=2)
    table.bar("maximum memory", max(high, after) / MIB, 30, "MiB", digits=2)
    table.bar("growth of open files", settled(server.files, files) - files, 0, "")
    table.bar("processes left", settled(children_of_ebb, processes) - processes, 0, "")
    table.bar("cgroups left", settled(cgroups, groups) - groups, 0, "")
    server.close()
    return {"jobs_per_s": count / took, "grown_bytes": after - before}


HOLD = """
import mmap, time
m = mmap.mmap(-1, {size})
for at in range(0, {size}, 4096):
    m[at] = 1
time.sleep(2)
"""


def in_use():
    return meminfo_bytes("AnonPages") + meminfo_bytes("Shmem")


def part_memory(table, options):
    size = GIB // 2 if options.quick else 4 * GIB
    if meminfo_bytes("MemAvailable") < size * 3 // 2:
        table.row("memory returned after a large job", "left out", "this machine has too little memory")
        return {}
    table.title(f"memory of the machine after each of three jobs of {size / GIB:g} GiB")
    server = Server(options, "--slots", "1", name="memory")
    worst = []
    for i in range(3):
        before = in_use()
        job = server.wait(server.submit(sys.executable, "-c", HOLD.format(size=size), name="hold"), limit_s=600)
        if job["state"] != "succeeded" or job["memory"]["peak_bytes"] < 0.9 * size:
            raise SystemExit(f"bench: the large job: {job['state']} {job['reason']} {job['memory']}")
        worst.append(in_use() - before)
        table.bar(f"AnonPages + Shmem more than before, job {i + 1}", worst[-1] / MIB, 20, "MiB")
    server.close()
    return {"worst_bytes": max(worst)}


def part_viewers(table, options):
    viewers, deaf, seconds = (100, 10, 10) if options.quick else (500, 50, 60)
    table.title(f"{viewers} viewers of one 10 Hz job, {deaf} of them never reading")
    server = Server(options, "--slots", "1", "--max-viewers", "600", name="viewers")
    number = server.submit("sleep", "600", name="watched", options={"interval": "100ms"})
    server.wait(number, "running")
    t0 = server.ask("GET", f"/jobs/{number}/samples?points=16")["t0_s"]
    program = os.path.join(options.build, "bench", "serve", "viewers")
    crowd = subprocess.Popen([program, str(server.port), server.token, str(number), str(viewers), str(deaf),
                              str(seconds), repr(t0)], stdout=subprocess.PIPE, text=True)
    high = 0
    while crowd.poll() is None:
        high = max(high, server.memory())
        time.sleep(0.2)
    found = json.loads(crowd.stdout.read())
    server.http.close()  # The server has closed the idle connection by now.
    server.ask("POST", f"/jobs/{number}/cancel", {})
    server.wait(number)
    server.close()
    table.row("samples at the readers", f"{found['least_samples']}–{found['most_samples']}",
              f"{found['lost']} readers disconnected")
    table.row("delivery, median", f"{found['p50_ms']:.1f} ms", "from the sample to the viewer")
    table.bar("delivery, p99", found["p99_ms"], 250, "ms")
    table.bar("maximum memory of the server", high / MIB, 60, "MiB")
    return found


def part_reads(table, options):
    table.title("REST reads on loopback, four connections kept open")
    server = Server(options, "--slots", "1", name="reads")
    numbers = [server.submit("/bin/true", name="read", options={"no-heap": True}) for _ in range(20)]
    for number in numbers:
        server.wait(number)
    program = os.path.join(options.build, "bench", "serve", "rest")
    results = {}
    for path in (f"/api/v1/jobs/{numbers[0]}", "/api/v1/jobs?limit=20", "/api/v1/health"):
        out = subprocess.run([program, str(server.port), server.token, path, "4", "2" if options.quick else "5"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
        results[path] = json.loads(out)
    server.close()
    for i, (path, found) in enumerate(results.items()):
        if i == 0:
            table.bar("one job", found["per_s"], 5000, "a second", more_is_better=True, digits=0)
        else:
            table.row(path, f"{found['per_s']:.0f}/s")
    return results


def cpu_s(pid):
    fields = read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def highest_bytes(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", read_text(f"/proc/{pid}/status")).group(1)) << 10


def queue_under_changes(options, queued, seconds, *flags):
    """Measures the response time of a server with QUEUED queued jobs while two jobs per second are cancelled."""
    record = {"status": "queued", "command": ["true"], "cwd": "/"}
    name = f"file{queued}{len(flags)}"
    path = os.path.join(options.scratch, f"{name}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({str(i): record for i in range(queued)}, f, separators=(",", ":"))
    kept = os.path.join(options.scratch, "kept.json")
    server = Server(options, "--slots", "1", "--keep", "all", name=name)
    holds = server.submit("sleep", "3600", name="hold")
    server.wait(holds, "running")
    server.close()
    server = Server(options, "--slots", "1", "--import", path, *flags, name=name)
    pid = server.process.pid
    if flags:
        wait_for("the job file", lambda: os.path.exists(kept), 600)
    time.sleep(5)
    waits, writes, seen = [], 0, None
    began, cpu, changed, number = time.monotonic(), cpu_s(pid), 0, holds
    while time.monotonic() - began < seconds:
        if time.monotonic() - changed > 0.5:
            number, changed = number + 1, time.monotonic()
            server.ask("POST", f"/jobs/{number}/cancel", {})
        at = time.monotonic()
        server.ask("GET", "/health")
        waits.append((time.monotonic() - at) * 1e3)
        found = os.stat(kept).st_ino if flags else None
        writes, seen = writes + (found != seen), found
        time.sleep(0.002)
    share = (cpu_s(pid) - cpu) / (time.monotonic() - began)
    size = os.path.getsize(kept) if flags else 0
    high = highest_bytes(pid)
    server.ask("POST", f"/jobs/{holds}/cancel", {"grace_s": 0})
    server.wait(holds)
    server.process.kill()
    server.process.wait()
    return {"most_ms": max(waits), "p99_ms": sorted(waits)[int(len(waits) * 0.99)], "cpu_share": share,
            "high_bytes": high, "writes": writes, "size_bytes": size}


def part_file(table, options):
    results = {}
    kept = os.path.join(options.scratch, "kept.json")
    for queued, seconds in ((5000, 20),) if options.quick else ((5000, 30), (100000, 120)):
        table.title(f"--job-file with {queued:,} queued jobs, two changes per second")
        without = queue_under_changes(options, queued, 10)
        found = queue_under_changes(options, queued, seconds, "--job-file", kept)
        table.row("size of the file, and how often it was replaced", f"{found['size_bytes'] / MIB:.1f} MiB",
                  f"{found['writes']} times in {seconds} s")
        table.row("duration of a request, p99", f"{found['p99_ms']:.1f} ms", f"without the file {without['p99_ms']:.1f} ms")
        table.bar("maximum, compared with no file", found["most_ms"] - without["most_ms"], 20, "ms",
                  note=f"without the file {without['most_ms']:.1f} ms")
        table.bar("CPU time, compared with no file", (found["cpu_share"] - without["cpu_share"]) * 100, 15, "%",
                  note=f"of one core; without the file {without['cpu_share'] * 100:.1f} %")
        table.bar("memory maximum, compared with no file",
                  (found["high_bytes"] - without["high_bytes"]) / MIB, 8, "MiB",
                  note=f"without the file {without['high_bytes'] / MIB:.0f} MiB")
        results[str(queued)] = {"with": found, "without": without}
        os.unlink(kept)
    return results


def part_kill(table, options):
    kills = 20 if options.quick else 200
    table.title(f"{kills} times kill -9 of the server at random moments under load")
    folder = pathlib.Path(options.scratch, "kill")
    folder.mkdir()
    wrong, states, _ = kill.torture(options.ebb, folder, kills, seed=1)
    table.row("jobs accepted", str(states.pop("accepted")),
              ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    table.bar("lost, run twice, left behind, or a damaged database", len(wrong), 0, "",
              note="; ".join(wrong[:3]))
    return {"wrong": wrong}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS), type=lambda s: s.split(","))
    parser.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", "build"))
    options = parser.parse_args(argv)
    unknown = set(options.only) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    options.build = os.path.abspath(options.build)
    options.ebb = os.environ.get("EBB_BINARY", os.path.join(options.build, "ebb"))
    return options


def run_parts(table, options):
    results = {}
    for part in PARTS:
        if part in options.only:
            say(part)
            results[part] = globals()[f"part_{part}"](table, options)
            for name in os.listdir(options.scratch):
                if os.path.isdir(os.path.join(options.scratch, name)):
                    shutil.rmtree(os.path.join(options.scratch, name), ignore_errors=True)
    return results


if __name__ == "__main__":
    sys.exit(measure(parse(sys.argv[1:]), run_parts))
