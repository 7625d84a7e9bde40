"""Starts a job server for tests on a free port; ends it with all of its jobs."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from commands import IS_SANITIZED, PATIENCE_S, binary, environment, wait_for

ENDED = {"succeeded", "failed", "cancelled", "lost"}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def message(self):
        return self.json()["error"]["message"]

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Server:
    """A job server. STATE is its state folder, which may already exist."""

    def __init__(self, folder, *arguments, state=None, env=None, listen="127.0.0.1:0"):
        self.folder = pathlib.Path(folder)
        self.state = pathlib.Path(state) if state else self.folder / "state"
        self.ready = self.folder / "ready"
        self.arguments = ["serve", "--state-dir", str(self.state), "--listen", listen,
                          "--ready-file", str(self.ready), "--gpus", "0", *map(str, arguments)]
        self.env = env
        self.process = None
        self.log = self.folder / "serve.log"

    def start(self):
        self.ready.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([binary(), *self.arguments], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log,
                                            env=environment(self.env))
        wait_for(lambda: self.ready.exists() or self.process.poll() is not None, "the server")
        assert self.process.poll() is None, self.said()
        return self

    def said(self):
        return self.log.read_text()

    @property
    def port(self):
        return int(self.ready.read_text().strip().rsplit(":", 1)[1])

    @property
    def socket(self):
        return self.state / "sock"

    @property
    def token(self):
        return (self.state / "token").read_text().strip()

    @property
    def reader(self):
        return (self.state / "token.read-only").read_text().strip()

    def ask(self, method, path, body=None, headers=None, token="own", unix=False):
        """Sends one request on a new connection. BODY is bytes, or an object that is sent as
        JSON."""
        headers = dict(headers or {})
        if token:
            headers.setdefault("Authorization",
                               f"Bearer {self.token if token == 'own' else token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if method in ("POST", "DELETE"):
            headers.setdefault("Content-Type", "application/json")
        connection = UnixConnection(self.socket) if unix else \
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def get(self, path, **options):
        return self.ask("GET", f"/api/v1{path}", **options)

    def post(self, path, body=None, **options):
        return self.ask("POST", f"/api/v1{path}", body=body, **options)

    def raw(self, data, wanted=None):
        """Sends DATA and returns the raw response: everything received until the server closes the connection or WANTED
        arrives."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as s:
            # The server may refuse the request and close the connection before all data is sent.
            with contextlib.suppress(OSError):
                s.sendall(data)
            return hear(s, wanted)

    def submit(self, *command, **more):
        answer = self.post("/jobs", {"command": list(map(str, command)), **more})
        assert answer.status == 201, answer
        return answer.json()["id"]

    def job(self, number):
        return self.get(f"/jobs/{number}").json()

    def wait(self, number, until="ended"):
        """Waits until the job is in state UNTIL or has ended, and returns it."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            answer = self.get(f"/jobs/{number}?until={until}&timeout_s=10")
            job = answer.json()
            if answer.status == 429:  # Waiting requests of an earlier test may still occupy all slots.
                time.sleep(0.05)
            elif job["state"] == until or job["state"] in ENDED:
                return job
        raise AssertionError(f"job {number} did not get to {until}: {job}")

    def stop(self, signo=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signo)
            self.process.wait(PATIENCE_S)
        return self.process.returncode if self.process else None

    def end_jobs(self):
        """Jobs outlive their server but must not outlive the test."""
        if not self.process:
            return
        if self.process.poll() is not None:
            self.start()
        for job in self.get("/jobs?state=active&limit=500").json()["jobs"]:
            self.post(f"/jobs/{job['id']}/cancel", {"grace_s": 0})
        for job in self.get("/jobs?state=active&limit=500").json()["jobs"]:
            self.wait(job["id"])


def hear(s, wanted=None):
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while wanted is None or wanted not in said:
            piece = s.recv(65536)
            if not piece:
                break
            said += piece
    return said


@contextlib.contextmanager
def small_disk(folder):
    """Mounts a file system of 4 MiB at FOLDER."""
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder],
                                           capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted on this machine")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def fill(path):
    """Creates the file PATH, which takes all free space of its file system."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as f:
        while True:
            f.write(b"x" * 4096)


@contextlib.contextmanager
def serving(*arguments, **options):
    folder = tempfile.mkdtemp(prefix="ebb-serve-", dir="/tmp")
    server = Server(folder, *arguments, **options)
    try:
        yield server.start()
        server.end_jobs()
    finally:
        server.stop()
        if IS_SANITIZED:
            assert "Sanitizer" not in server.said(), server.said()
        shutil.rmtree(folder, ignore_errors=True)
