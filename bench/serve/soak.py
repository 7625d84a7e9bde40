#!/usr/bin/env python3
"""Runs the server under all loads at the same time: submits, cancels, viewers, kill -9, a full disk, hostile jobs.

    bench/serve/soak.py [--minutes N] [--seed N] [--build DIR] [--keep-folder]

Every job appends a line to a proof file when it starts. At the end every accepted job must have exactly one
final state that its kind allows, no job may have run twice, no process of a job may be left, the database must
be intact, and the server's memory and file descriptors must stay constant between kills. Prints one table;
exits with 1 if a rule is violated. If run by root, the state folder is a small tmpfs that is sometimes full, and some
jobs fork without end or are frozen (cgroup v1). For other users these loads are left out, and one line says so.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kill  # noqa: E402

MIB = 1 << 20
DISK_BYTES = 3 << 30
KEEP_FREE_JOBS = 40  # No jobs are submitted while this many are queued.
FLAT_RSS_BYTES = 4 * MIB
FLAT_FDS = 16
PROCESSES = 600

MARKS = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setblocking(False)
end, n = time.monotonic() + 1.5, 0
while time.monotonic() < end:
    n += 1
    try:
        s.sendto(b"KIND=step\\nSTEP=%d" % n, os.environ["EBB_SOCKET"])
    except OSError:
        time.sleep(0.001)
"""
HOG = "b = bytearray(400 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nimport time; time.sleep(30)"

# Maps each kind of job to (weight, script, options, allowed final states, whether it is always cancelled). Every script
# begins with $PROOF.
KINDS = {
    "echo": (30, "true", {}, {"succeeded"}, False),
    "sleep": (15, "sleep 0.$((RANDOM % 9))", {}, {"succeeded"}, False),
    "status": (5, "exit 3", {}, {"failed"}, False),
    "output": (4, "yes 'a line of output' | head -c 30000000", {}, {"succeeded"}, False),
    "marks": (4, 'python3 -c "$MARKS"', {}, {"succeeded"}, False),
    "daemons": (4, "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; true", {}, {"succeeded"},
                False),
    "litter": (3, ": >\"/dev/shm/ebb-soak-$$ \"$'\\n\\e[31m'", {}, {"succeeded"}, False),
    "arguments": (3, "true", {"argv": "x" * 100_000 + "\x1b[2J\n"}, {"succeeded"}, False),
    "hog": (3, 'exec python3 -c "$HOG"', {"limit": "100M"}, {"failed"}, False),
    "stubborn": (4, "trap '' TERM INT HUP; while :; do sleep 0.1; done", {}, {"cancelled"}, True),
    "stopped": (3, "kill -STOP $$", {}, {"cancelled"}, True),
    "watcher": (3, "kill -9 $PPID; sleep 5", {}, {"lost"}, False),
    "storm": (2, "echo $$ >$STORM/cgroup.procs; b() { b | b & }; b; sleep 1000", {}, {"cancelled"}, True),
    "frozen": (3, "echo $$ >$FREEZER/cgroup.procs; sleep 0.5", {}, {"succeeded"}, False),
}


class Server(kill.Server):
    def __init__(self, binary, folder, state, slots):
        super().__init__(binary, folder, slots)
        self.state, self.socket, self.ready = state, state / "sock", folder / "ready"
        self.sockets = folder / "tmp"
        self.sockets.mkdir()

    def start(self):
        with contextlib.suppress(OSError):
            self.ready.unlink()
        arguments = [self.binary, "serve", "--state-dir", self.state, "--listen", "127.0.0.1:0", "--ready-file",
                     self.ready, "--slots", str(self.slots), "--memory", "none", "--gpus", "0", "--grace", "1s",
                     "--keep", "all", "--log-max", "1M", "--job-file", self.ready.parent / "jobs.json"]
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=dict(os.environ, TMPDIR=str(self.sockets)))

    def port(self):
        with contextlib.suppress(OSError, AttributeError):
            return int(re.search(r":(\d+)\D*$", self.ready.read_text().strip()).group(1))
        return None

    def token(self, name="token"):
        return (self.state / name).read_text().strip()


class Groups:
    """Creates cgroups (v1) for the kinds that need one, and a cgroup that limits the total number of processes."""

    def __init__(self):
        self.pids = self.storm = self.freezer = None
        root = pathlib.Path("/sys/fs/cgroup")
        with contextlib.suppress(OSError):
            self.pids = self.make(root / "pids" / f"ebb-soak-{os.getpid()}")
            (self.pids / "pids.max").write_text(str(PROCESSES))
            self.storm = self.make(self.pids / "storm")
            (self.storm / "pids.max").write_text("200")
            (self.pids / "cgroup.procs").write_text("0")
        with contextlib.suppress(OSError):
            self.freezer = self.make(root / "freezer" / f"ebb-soak-{os.getpid()}")

    @staticmethod
    def make(path):
        path.mkdir()
        return path

    def freeze(self, word):
        if self.freezer:
            (self.freezer / "freezer.state").write_text(word)

    def close(self):
        self.freeze("THAWED")
        if self.pids:
            (self.pids.parent / "cgroup.procs").write_text("0")
        for path in (self.storm, self.pids, self.freezer):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    if path:
                        path.rmdir()
                    break
                time.sleep(0.1)


class Load(kill.Load):
    """Submits jobs of all kinds. DISTURBED contains the jobs whose supervisor or sentinel was killed, or that ran on a
    full disk."""

    def __init__(self, server, proof, seed, groups):
        super().__init__(server, proof, seed)
        self.kinds, self.disturbed, self.groups = {}, set(), groups
        self.is_full = False
        names = [name for name in KINDS if (name != "storm" or groups.storm) and (name != "frozen" or groups.freezer)]
        self.names, self.weights = names, [KINDS[name][0] for name in names]

    def request(self):
        with self.lock:
            kind = self.random.choices(self.names, self.weights)[0]
        _, script, options, _, _ = KINDS[kind]
        options = dict(options)
        argv = [options.pop("argv")] if "argv" in options else []
        script = f'echo "${{EBB_RUN_DIR##*/}}" >>{self.marks}; {script}'
        env = {"MARKS": MARKS, "HOG": HOG, "STORM": str(self.groups.storm), "FREEZER": str(self.groups.freezer)}
        return {"command": ["/bin/bash", "-c", script, "soak", *argv], "cwd": "/", "name": kind, "env": env, **options}

    def run(self):
        while not self.stop.is_set():
            waiting = self.server.ask("GET", "/jobs?state=queued&limit=100")
            if waiting and waiting[0] == 200 and len(waiting[1]["jobs"]) >= KEEP_FREE_JOBS:
                time.sleep(0.2)
                continue
            request = self.request()
            answer = self.server.ask("POST", "/jobs", request)
            if answer and answer[0] == 201:
                number, kind = answer[1]["id"], request["name"]
                with self.lock:
                    self.accepted[number], self.kinds[number] = request, kind
                    if self.is_full:
                        self.disturbed.add(number)
                if not KINDS[kind][4] and self.random.random() < 0.1:
                    self.cancel(number)
            elif answer and answer[0] not in (503, 429, 507):
                raise RuntimeError(f"refused: {answer}")
            time.sleep(0.03)

    def cancel_loop(self):
        """Cancels running jobs of the kinds that never end by themselves. The server's responses are ignored."""
        while not self.stop.wait(0.5):
            self.cancel_running()

    def cancel_running(self):
        answer = self.server.ask("GET", "/jobs?state=running&limit=100")
        for job in answer[1]["jobs"] if answer and answer[0] == 200 else []:
            kind = self.kinds.get(job["id"])
            if kind and KINDS[kind][4] and (job.get("runtime_s") or 1) > 0.5:
                self.cancel(job["id"])


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.groups = Groups()
        self.random = random.Random(options.seed + 1)
        self.state = folder / "disk" / "state"
        self.has_disk = self.mount()
        (folder / "proof").touch()
        self.server = Server(options.ebb, folder, self.state, slots=6)
        self.load = Load(self.server, folder / "proof", options.seed, self.groups)
        self.stop = threading.Event()
        self.counts = collections.Counter()
        self.latency, self.calm, self.wrong = [], [], []

    def mount(self):
        disk = self.folder / "disk"
        disk.mkdir()
        return os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk], stderr=subprocess.DEVNULL
        ).returncode == 0

    # ---- loads, one thread each ----

    def probe(self):
        """Measures the duration of an ordinary request."""
        while not self.stop.wait(0.2):
            began = time.monotonic()
            if self.server.ask("GET", "/jobs?limit=20"):
                self.latency.append(time.monotonic() - began)

    def measure(self):
        """Samples (seconds, RSS, number of descriptors) of the server between two kills."""
        pid, life = None, []
        while not self.stop.wait(1):
            process = self.server.process
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                rss = int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) << 10
                fds = len(os.listdir(f"/proc/{process.pid}/fd"))
            except (OSError, AttributeError):
                continue
            if process.pid != pid:
                pid, life = process.pid, []
                self.calm.append(life)
            life.append((time.monotonic(), rss, fds))

    def fill_disk(self):
        filler = self.folder / "disk" / "filler"
        while not self.stop.wait(self.random.uniform(20, 40)):
            with self.load.lock:
                self.load.is_full = True
            self.disturb_active()
            with contextlib.suppress(OSError), open(filler, "wb") as file:
                while True:
                    file.write(bytes(MIB))
            self.counts["full disks"] += 1
            self.stop.wait(self.random.uniform(2, 5))
            filler.unlink()
            time.sleep(1)
            self.disturb_active()
            with self.load.lock:
                self.load.is_full = False

    def disturb_active(self):
        """Jobs that are now queued or running may fail because the disk is full."""
        answer = None
        while not answer or answer[0] != 200:
            answer = self.server.ask("GET", "/jobs?state=active&limit=100")
        with self.load.lock:
            self.load.disturbed.update(job["id"] for job in answer[1]["jobs"])

    def freeze(self):
        while not self.stop.wait(self.random.uniform(1, 4)):
            self.groups.freeze("FROZEN")
            self.stop.wait(self.random.uniform(1, 4))
            self.groups.freeze("THAWED")
        self.groups.freeze("THAWED")

    def kill_watchers(self):
        while not self.stop.wait(self.random.uniform(1, 5)):
            found = []
            for folder in pathlib.Path("/proc").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    line = (folder / "cmdline").read_bytes()
                    match = re.search(rb"/runs/(\d+)-", line)
                    if os.fsencode(str(self.state)) in line and match:
                        found.append((int(folder.name), int(match.group(1))))
            if found:
                pid, job = self.random.choice(found)
                with self.load.lock:
                    self.load.disturbed.add(job)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    self.counts["watchers killed"] += 1

    def view(self):
        program = os.path.join(self.options.build, "bench", "serve", "viewers")
        while not self.stop.wait(0.5):
            port, running = self.server.port(), self.server.ask("GET", "/jobs?state=running&limit=1")
            jobs = running[1]["jobs"] if running and running[0] == 200 else []
            if not port or not jobs:
                continue
            with contextlib.suppress(OSError):
                token = self.server.token("token.read-only")
                subprocess.run([program, str(port), token, str(jobs[0]["id"]), "60", "15", "4", "0"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.counts["viewers"] += 60

    def abuse(self):
        """A client with a read-only token that uses as many resources as it can: waiting requests, malformed requests,
        open connections."""
        held = collections.deque()
        requests = (b"GET /api/v1/jobs/1?until=ended&timeout_s=60 HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                    b"GET /api/v1/jobs/999999999/logs?follow=1 HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n%s\r\n{",
                    b"GET /%00\x00 HTTP/1.1\r\nHost: \x00\r\n%s\r\n", b"\x16\x03\x01\x00\xff" * 50 + b"%s")
        while not self.stop.wait(0.02):
            port = self.server.port()
            with contextlib.suppress(OSError, TypeError):
                s = socket.create_connection(("127.0.0.1", port), timeout=2)
                bearer = b"Authorization: Bearer " + self.server.token("token.read-only").encode() + b"\r\n"
                s.sendall(self.random.choice(requests).replace(b"%s", bearer))
                held.append(s)
                self.counts["abusive requests"] += 1
            while len(held) > 150:
                held.popleft().close()

    # ---- the whole soak test ----

    def kill_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self.random.choice((self.random.uniform(0, 0.1), self.random.uniform(0, 3))))
            if self.server.process.poll() is not None and self.server.process.returncode != -signal.SIGKILL:
                self.wrong.append(f"the server exited with status {self.server.process.returncode}")
            self.server.kill()
            self.server.start()
            self.counts["kills of the server"] += 1
        self.server.wait_until_it_answers()

    def run(self):
        self.server.start()
        self.server.wait_until_it_answers()
        actors = [self.probe, self.measure, self.view, self.abuse, self.kill_watchers, self.load.cancel_loop]
        actors += [self.fill_disk] * self.has_disk + [self.freeze] * bool(self.groups.freezer)
        threads = [threading.Thread(target=actor, daemon=True) for actor in actors]
        for thread in threads:
            thread.start()
        self.load.begin()
        # The run consists of three equal parts. During one fifth of each part the server is killed repeatedly, and
        # during the rest never.
        for third in range(3):
            seconds = self.options.minutes * 20
            self.kill_for(seconds / 5)
            until = time.monotonic() + seconds * 4 / 5
            while time.monotonic() < until:
                time.sleep(0.5)
                if self.server.process.poll() is not None:
                    self.wrong.append(f"the server exited with status {self.server.process.returncode}")
                    self.server.start()
            print(f"soak: {third + 1} of 3: {len(self.load.accepted)} jobs accepted, {dict(self.counts)}", flush=True)
        self.load.end()
        self.stop.set()
        for thread in threads:
            thread.join(60)
        while True:
            self.load.cancel_running()
            answer = self.server.ask("GET", "/jobs?state=active&limit=1")
            if answer and answer[0] == 200 and not answer[1]["jobs"]:
                break
            time.sleep(0.5)
        kill.wait_until_all_ended(self.server)
        self.server.stop()

    def judge_jobs(self, rows):
        ran = collections.Counter(int(line.split("-")[0]) for line in (self.folder / "proof").read_text().split())
        for job, kind in self.load.kinds.items():
            if job not in rows:
                self.wrong.append(f"job {job} ({kind}) was accepted and is lost")
                continue
            state, reason = rows[job]
            allowed = KINDS[kind][3] | ({"cancelled"} if job in self.load.cancelled else set())
            if state not in kill.FINAL:
                self.wrong.append(f"job {job} ({kind}) has no final state: {state}")
            elif job not in self.load.disturbed and state not in allowed:
                self.wrong.append(f"job {job} ({kind}) is {state}: {reason}")
            if state == "succeeded" and ran[job] != 1:
                self.wrong.append(f"job {job} ({kind}) succeeded and ran {ran[job]} times")
        self.wrong += [f"job {job} ran {count} times" for job, count in ran.items() if count > 1]
        self.wrong += [f"something ran as job {job}, which does not exist" for job in ran if job not in rows]

    def judge_lives(self):
        """Returns the growth of memory and descriptors in each long period between two starts of the server."""
        found = []
        for life in self.calm:
            if len(life) < 40:
                continue
            third = len(life) // 3
            first, last = life[:third], life[-third:]
            rss = [statistics.median(sample[1] for sample in part) for part in (first, last)]
            fds = [statistics.median(sample[2] for sample in part) for part in (first, last)]
            found.append((rss, fds))
            if rss[1] - rss[0] > FLAT_RSS_BYTES:
                self.wrong.append(f"the server's memory grew from {rss[0] / MIB:.1f} to {rss[1] / MIB:.1f} MiB")
            if fds[1] - fds[0] > FLAT_FDS:
                self.wrong.append(f"the server's descriptors grew from {fds[0]:.0f} to {fds[1]:.0f}")
        return found

    def judge_rest(self, before):
        left = kill.left_processes(self.state)
        if left:
            self.wrong.append(f"processes are left: {left}")
        if self.groups.storm and (self.groups.storm / "cgroup.procs").read_text():
            self.wrong.append("processes of a fork storm are left")
        new = {name for name in cgroups() - before if not is_running(name)}
        if new:
            self.wrong.append(f"cgroups are left: {sorted(new)[:5]} ({len(new)})")
        # The next `ebb run` removes the socket folders of jobs whose supervisor and sentinel were both killed.
        subprocess.run([self.options.ebb, "run", "-q", "--no-record", "--", "true"], check=True,
                       env=dict(os.environ, TMPDIR=str(self.server.sockets)))
        sockets = list(self.server.sockets.iterdir())
        if sockets:
            self.wrong.append(f"socket folders are left: {sockets[:5]} ({len(sockets)})")
        if list((self.state / "locks").iterdir()):
            self.wrong.append("locks are left")

    def report(self, rows, lives):
        states = collections.Counter(state for state, _ in rows.values())
        latency = sorted(self.latency)
        print(f"minutes                {self.options.minutes:g}")
        print(f"jobs accepted          {len(self.load.accepted)}: " +
              ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
        print("kinds                  " +
              ", ".join(f"{count} {kind}" for kind, count in collections.Counter(self.load.kinds.values()).items()))
        for name, count in self.counts.items():
            print(f"{name:<22} {count}")
        for (rss, fds) in lives:
            print(f"server between kills   {rss[0] / MIB:.1f} → {rss[1] / MIB:.1f} MiB, "
                  f"{fds[0]:.0f} → {fds[1]:.0f} descriptors (medians of its first and last third)")
        if latency:
            print(f"GET /jobs              median {1e3 * latency[len(latency) // 2]:.1f} ms, "
                  f"p99 {1e3 * latency[int(len(latency) * 0.99)]:.1f} ms, {len(latency)} answers")
        print(f"violations             {len(self.wrong)}")
        for sentence in self.wrong[:40]:
            print(f"soak: {sentence}")


def cgroups():
    """Returns the cgroups of all jobs on this machine."""
    found = set()
    for base, folders, _ in os.walk("/sys/fs/cgroup", onerror=lambda _: None):
        found.update(os.path.join(base, name) for name in folders if re.fullmatch(r"ebb-\d+-\d+", name))
    return found


def is_running(name):
    """Returns whether the supervisor of this cgroup is alive and was not started by this test."""
    match = re.search(r"ebb-(\d+)-\d+$", name)
    return bool(match) and os.path.exists(f"/proc/{match.group(1)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=os.environ.get("EBB_BUILD_DIR", str(kill.ROOT / "build")))
    parser.add_argument("--keep-folder", action="store_true")
    options = parser.parse_args()
    options.ebb = os.environ.get("EBB_BINARY", os.path.join(options.build, "ebb"))
    before = cgroups()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    soak = Soak(options, folder)
    if not soak.has_disk or not soak.groups.storm or not soak.groups.freezer:
        print("soak: left out without root and cgroup v1: " + ", ".join(
            name for name, there in (("the full disk", soak.has_disk), ("the fork storm", soak.groups.storm),
                                     ("frozen jobs", soak.groups.freezer)) if not there))
    try:
        soak.run()
        whole, rows = kill.rows_of(soak.state)
        if whole != [("ok",)]:
            soak.wrong.append(f"the database is damaged: {whole}")
        soak.judge_jobs(rows)
        lives = soak.judge_lives()
        soak.judge_rest(before)
        soak.report(rows, lives)
    finally:
        soak.groups.close()
        for path in pathlib.Path("/dev/shm").glob("ebb-soak-*"):
            path.unlink()
        if not options.keep_folder:
            if soak.has_disk:
                subprocess.run(["umount", "-l", folder / "disk"], check=False)
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
