"""Kills `ebb serve` with SIGKILL at random moments under load, and then checks that no job was lost or run twice.

    bench/serve/kill.py [--kills N] [--seed N] [--slots N] [--keep-folder]

Every accepted job must exist and have run exactly once, and the database must be intact. EBB_BINARY is the path of the
program. Prints every violation; exits with 1 if there is one.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FINAL = ("succeeded", "failed", "cancelled", "lost")
SUBMITTERS = 3
SETTLE_S = 300


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=10):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """Runs servers, one after another, in the same state folder."""

    def __init__(self, binary, folder, slots, arguments=(), env=None):
        self.binary, self.slots, self.arguments, self.env = binary, slots, arguments, env
        self.state = folder / "state"
        self.socket = self.state / "sock"
        self.log = open(folder / "serve.log", "ab")
        self.process = None

    def start(self):
        arguments = [self.binary, "serve", "--state-dir", self.state, "--listen", "none",
                     "--slots", str(self.slots), "--memory", "none", "--grace", "1s", *self.arguments]
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env=self.env)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def ask(self, method, path, body=None, timeout=10):
        """Returns (status, document), or None if the server was killed before it answered."""
        connection = Connection(self.socket, timeout)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            text = json.dumps(body) if body is not None else None
            connection.request(method, "/api/v1" + path, text, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def wait_until_it_answers(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.ask("GET", "/health"):
                return
            if self.process.poll() is not None:
                lines = open(self.log.name, errors="replace").read().splitlines()
                raise RuntimeError(f"the server ended with {self.process.returncode}: {lines[-1:]}")
            time.sleep(0.01)
        raise RuntimeError("the server does not answer")


class Load:
    """Submits jobs and cancels some of them, up to JOBS in all (None: no limit). Records which requests were
    accepted."""

    def __init__(self, server, marks, seed, jobs=None, more=None):
        self.server, self.marks, self.jobs, self.more = server, marks, jobs, more or {}
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.accepted, self.cancelled = {}, set()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(SUBMITTERS)]

    def request(self):
        with self.lock:
            sleep = self.random.choice((0, 0, 0, 0.05, 0.3))
            after = []
            if self.accepted and self.random.random() < 0.15:
                after = [self.random.choice(list(self.accepted))]
        # Each job appends the name of its folder with a single write, which is atomic.
        script = f'echo "${{EBB_RUN_DIR##*/}}" >>{self.marks}; sleep {sleep}'
        return {"command": ["/bin/sh", "-c", script], "cwd": "/", "name": "kill", "after": after, **self.more}

    def run(self):
        while not self.stop.is_set() and (self.jobs is None or len(self.accepted) < self.jobs):
            request = self.request()
            answer = self.server.ask("POST", "/jobs", request)
            if answer and answer[0] == 201:
                with self.lock:
                    self.accepted[answer[1]["id"]] = request
                    is_cancelled = self.random.random() < 0.1
                if is_cancelled:
                    self.cancel(answer[1]["id"])
            elif answer and answer[0] not in (503, 429):
                raise RuntimeError(f"refused: {answer}")
            time.sleep(0.02 if answer else 0.005)

    def cancel(self, job):
        answer = self.server.ask("POST", f"/jobs/{job}/cancel", {"reason": "by the test"})
        if answer and answer[0] == 202:
            with self.lock:
                self.cancelled.add(job)

    def begin(self):
        for thread in self.threads:
            thread.start()

    def wait_for_more(self, count):
        """Waits until COUNT more jobs are accepted. Without this wait, a slow machine might accept no job between two
        kills."""
        wanted, until = len(self.accepted) + count, time.monotonic() + SETTLE_S
        while len(self.accepted) < wanted and time.monotonic() < until:
            time.sleep(0.01)

    def end(self):
        for thread in self.threads:
            thread.join(60 if self.jobs is None else SETTLE_S)
        self.stop.set()


def wait_until_all_ended(server):
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        answer = server.ask("GET", "/jobs?state=active&limit=1")
        if answer and answer[0] == 200 and not answer[1]["jobs"]:
            return
        time.sleep(0.2)
    raise RuntimeError(f"jobs still run after {SETTLE_S} s: {answer}")


def rows_of(state):
    words = ("queued", "starting", "running", "checkpointing", "stopping", *FINAL)
    with sqlite3.connect(f"file:{state}/jobs.db?mode=ro", uri=True) as database:
        whole = database.execute("PRAGMA integrity_check").fetchall()
        rows = database.execute("SELECT id, state, reason FROM jobs").fetchall()
    return whole, {job: (words[word], reason) for job, word, reason in rows}


def left_processes(state):
    """Returns processes whose command line contains the state folder."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int(folder.name) != os.getpid() and \
                    os.fsencode(str(state)) in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            pass
    return found


def judge(server, load, marks):
    """Returns a message for each violation."""
    times = collections.Counter(int(line.split("-")[0]) for line in marks.read_text().split())
    whole, rows = rows_of(server.state)
    wrong = [] if whole == [("ok",)] else [f"the database is damaged: {whole}"]
    for job in load.accepted:
        if job not in rows:
            wrong.append(f"job {job} was accepted and is lost")
    for job, (state, reason) in rows.items():
        ran = times[job]
        if ran > 1:
            wrong.append(f"job {job} ran {ran} times")
        if state not in ("succeeded", "cancelled"):
            wrong.append(f"job {job} is {state}: {reason}; and ran {ran} times")
        if state == "succeeded" and ran != 1:
            wrong.append(f"job {job} succeeded and ran {ran} times")
        if job in load.cancelled and state != "cancelled":
            wrong.append(f"job {job} was to be cancelled and is {state}")
        if state == "cancelled" and job not in load.cancelled and "which this job depends on" not in str(reason) \
                and reason != "by the test":
            wrong.append(f"job {job} was cancelled, and nobody asked for it: {reason}")
    for job in times:
        if job not in rows:
            wrong.append(f"something ran as job {job}, which does not exist")
    if list((server.state / "locks").iterdir()):
        wrong.append("locks are left")
    left = left_processes(server.state)
    if left:
        wrong.append(f"processes are left: {left}")
    return wrong, rows


def torture(binary, folder, kills, seed, slots=4, jobs=None, pause_s=0.8, arguments=(), env=None, more=None):
    """Returns (violations, number of jobs in each state, seconds). ARGUMENTS and ENV are passed to the server; MORE has
    additional keys of each job request; PAUSE_S is the maximum time between two kills."""
    marks = folder / "marks"
    marks.touch()
    server = Server(binary, folder, slots, arguments, env)
    load = Load(server, marks, seed, jobs, more)
    dice = random.Random(seed + 1)
    began = time.monotonic()
    server.start()
    server.wait_until_it_answers()
    load.begin()
    load.wait_for_more(5)
    for _ in range(kills):
        # Some kills occur before the server has loaded its jobs, but most while it is working.
        time.sleep(dice.choice((dice.uniform(0, 0.03), dice.uniform(0, 0.3), dice.uniform(0, pause_s))))
        server.kill()
        server.start()
    server.wait_until_it_answers()
    if jobs is None:
        load.wait_for_more(5)
        load.stop.set()
    load.end()
    wait_until_all_ended(server)
    server.stop()
    wrong, rows = judge(server, load, marks)
    states = collections.Counter(state for state, _ in rows.values())
    return wrong, dict(states, accepted=len(load.accepted)), time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--keep-folder", action="store_true")
    options = parser.parse_args()
    binary = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-kill-"))
    try:
        wrong, states, seconds = torture(binary, folder, options.kills, options.seed, options.slots)
    finally:
        if not options.keep_folder:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.kills} kills in {seconds:.0f} s: {states}")
    for sentence in wrong:
        print(f"kill: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
