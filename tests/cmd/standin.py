"""A fake job server on a unix socket. It gives the responses that a test defines, and records the requests."""

import json
import pathlib
import socket
import tempfile
import shutil
import threading
import urllib.parse


class StandIn:
    """ANSWERS maps "METHOD path" to a function of (query, body) that returns the response as (status, headers,
    body)."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
        self.path = self.folder / "sock"
        self.answers = {}
        self.asked = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(16)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        shutil.rmtree(self.folder)

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                try:
                    self.answer(client)
                except (BrokenPipeError, ConnectionResetError):
                    pass

    def answer(self, client):
        data = b""
        while b"\r\n\r\n" not in data:
            part = client.recv(65536)
            if not part:
                return
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {key.lower(): value for key, value in
                   (line.split(": ", 1) for line in lines[1:])}
        while len(body) < int(headers.get("content-length", 0)):
            body += client.recv(65536)
        method, target, _ = lines[0].split(" ")
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        self.asked.append((method, url.path, query, json.loads(body) if body else None, headers))
        answer = self.answers.get(f"{method} {url.path}")
        if answer is None:
            answer = error(404, f"there is no {url.path} here")
        elif callable(answer):
            answer = answer(query, self.asked[-1][3])
        client.sendall(answer)

    def say(self, what, answer):
        self.answers[what] = answer


def reply(body, status=200, headers=None):
    """Returns an HTTP response as bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever"] + [f"{k}: {v}" for k, v in (headers or {}).items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def error(status, message):
    return reply({"error": {"status": status, "message": message}}, status)
