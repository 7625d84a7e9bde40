"""Starts a detached job and communicates with its supervisor over the control socket, as the job server does."""

import fcntl
import json
import os
import socket
import struct
import time

from commands import PATIENCE_S, wait_for


class Lock:
    """A file whose lock is inherited by the job."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def let_go(self):
        os.close(self.fd)

    def is_held(self):
        fd = os.open(self.path, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def holder(self):
        pid, start = self.path.read_text().split()
        return int(pid), int(start)


class Control:
    """A connection to the control socket. Each frame has a type, a length and JSON data."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.rest = b""

    def close(self):
        self.socket.close()

    def read(self):
        """Returns the next message, or None if the connection was closed."""
        while True:
            if len(self.rest) >= 5:
                size, = struct.unpack("<I", self.rest[1:5])
                if len(self.rest) >= 5 + size:
                    assert self.rest[:1] == b"n"
                    text = self.rest[5:5 + size]
                    self.rest = self.rest[5 + size:]
                    return json.loads(text)
            data = self.socket.recv(65536)
            if not data:
                return None
            self.rest += data

    def until(self, wanted):
        """Returns all messages up to and including the first one for which WANTED is true."""
        seen = []
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            message = self.read()
            assert message is not None, f"the connection ended after {seen}"
            seen.append(message)
            if wanted(message):
                return seen
        raise AssertionError(f"it did not come; instead: {seen}")

    def until_type(self, kind):
        return self.until(lambda message: message["type"] == kind)[-1]

    def send_frame(self, kind, text):
        self.socket.sendall(kind + struct.pack("<I", len(text)) + text)

    def ask(self, **request):
        """Sends a request and returns its reply."""
        self.send_frame(b"r", json.dumps(request).encode())
        return self.until_type("answer")


def detach(guarded, *arguments, lock=None):
    """Starts a detached job; returns the result of `ebb run`, which exits once the job has started."""
    options = [] if lock is None else ["--lock-fd", lock.fd]
    fds = () if lock is None else (lock.fd,)
    return guarded.end(guarded.start("--detached", *options, *arguments, pass_fds=fds))


def connect(guarded):
    doc = wait_for(lambda: guarded.facts() if guarded.run_dirs() else None, "run.json")
    return Control(doc["control"])
