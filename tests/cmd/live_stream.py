"""A WebSocket client that can also violate the protocol, and a server that provides only the live stream."""

import base64
import json
import os
import pathlib
import socket
import struct
import subprocess

from commands import PATIENCE_S, binary

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", pathlib.Path(binary()).parent))
PROGRAM = BUILD / "tests" / "serve_programs" / "live_server"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Server:
    """Runs tests/serve/live_server.c and controls its simulated jobs and logs by commands."""

    def __init__(self, look=2000, ping=20000, silent=600000, stuck=600000, goodbye=60000, viewers=600):
        self.process = subprocess.Popen(
            [PROGRAM, *map(str, (look, ping, silent, stuck, goodbye, viewers))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0 or kind

    def do(self, what, **more):
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()

    def job(self, number, state, **more):
        self.do("job", id=number, job={"id": number, "state": state, **more}, change=True)

    def counts(self):
        self.do("counts")
        return json.loads(self.process.stdout.readline())

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


def frame(opcode, data=b"", fin=True, mask=b"\1\2\3\4", reserved=0, length=None):
    """Builds a WebSocket frame. The frame is invalid if MASK is empty or LENGTH is given."""
    n = len(data) if length is None else length
    head = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])
    bit = 0x80 if mask else 0
    head += (bytes([bit | n]) if n < 126 else bytes([bit | 126]) + struct.pack(">H", n) if n < 65536
             else bytes([bit | 127]) + struct.pack(">Q", n))
    return head + (mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if mask else data)


def handshake(**changes):
    headers = {"Host": "localhost", "Upgrade": "websocket", "Connection": "keep-alive, Upgrade",
               "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
               **{key.replace("_", "-"): value for key, value in changes.items()}}
    lines = [f"{key}: {value}" for key, value in headers.items() if value is not None]
    return "\r\n".join(["GET /api/v1/live HTTP/1.1", *lines, "", ""]).encode()


class Viewer:
    def __init__(self, server, early=b"", receive_bytes=None, **changes):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(handshake(**changes) + early)
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        self.status, *lines = head.decode().split("\r\n")
        self.headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def more(self):
        got = self.socket.recv(65536)
        if not got:
            raise EOFError
        self.data += got

    def take(self, n):
        while len(self.data) < n:
            self.more()
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    def frame(self):
        """Returns (opcode, data) of the next frame; asserts that it is complete and unmasked."""
        first, n = self.take(2)
        assert first & 0xF0 == 0x80 and not n & 0x80
        if n == 126:
            n, = struct.unpack(">H", self.take(2))
        elif n == 127:
            n, = struct.unpack(">Q", self.take(8))
        return first & 15, self.take(n)

    def message(self, kind=None):
        """Returns the next message (of type KIND, if given), and answers pings in the meantime."""
        while True:
            opcode, data = self.frame()
            if opcode == PING:
                self.send(PONG, data)
                continue
            assert opcode == TEXT, (opcode, data)
            got = json.loads(data)
            if kind is None or got["type"] == kind:
                return got

    def closed(self):
        """Skips messages until the close frame arrives; returns its code and reason."""
        while True:
            opcode, data = self.frame()
            if opcode == CLOSE:
                code, = struct.unpack(">H", data[:2])
                return code, data[2:].decode()

    def send(self, opcode, data=b"", **options):
        self.socket.sendall(frame(opcode, data, **options))

    def want(self, **wishes):
        """Sends a subscription and waits until the server has received it; returns the messages that arrived in the
        meantime."""
        self.send(TEXT, json.dumps(wishes).encode())
        self.send(PING, b"received?")
        got = []
        while True:
            opcode, data = self.frame()
            if (opcode, data) == (PONG, b"received?"):
                return got
            if opcode == PING:
                self.send(PONG, data)
            else:
                got.append(json.loads(data))


def random_key():
    return base64.b64encode(os.urandom(16)).decode()
