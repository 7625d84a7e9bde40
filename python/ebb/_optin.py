"""Lets `ebb attach` attach to this process without a debugger's privileges, if the user has set
EBB_ATTACH=1. Importing this module starts the thread described below.

A thread listens at a socket (SOCK_SEQPACKET) in a folder that only the user can access: attach.PID
in $XDG_RUNTIME_DIR/ebb, or else in /tmp/ebb-UID. Each connection carries one request and its
answer, both as KEY=VALUE lines. The request is either REQUEST=start with SOCKET, RUN_DIR, LIBRARY
and INTERVAL (see ebb._attach.start), or REQUEST=stop. The answer is KIND=attach with STATUS=done,
or with STATUS=failed and REASON. Closing the connection withdraws a request that has not been
served yet. The process also lets other processes of the same user read its memory, which Yama
forbids by default.
"""

from __future__ import annotations

import atexit
import os
import socket
import stat
import threading
from typing import Optional

_PTRACER = 0x59616D61  # PR_SET_PTRACER
_PTRACER_ANY = (1 << 64) - 1
_REQUEST_MAX = 8192
_REASON_MAX = 300
_REQUEST_S = 1.0  # maximum seconds that a client may take to send its request
_WAITING = 8
_JOIN_S = 0.1

_socket: Optional[socket.socket] = None
_path: Optional[str] = None
_thread: Optional[threading.Thread] = None
_pid = 0


def folder() -> str:
    """Creates the folder of the sockets if necessary, and returns its path. Raises OSError if other
    users can access it."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = os.path.join(base, "ebb") if base else f"/tmp/ebb-{os.getuid()}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{path} must be a folder that only this user can access")
    return path


def _permit_reading() -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PTRACER, ctypes.c_ulong(_PTRACER_ANY), 0, 0, 0)
    except Exception:  # this Python has no ctypes
        pass


def _serve(request: dict[str, str]) -> None:
    from . import _attach

    what = request.get("REQUEST")
    if what == "start" and request.get("SOCKET"):
        interval = request.get("INTERVAL", "")
        _attach.start(
            request["SOCKET"],
            request.get("RUN_DIR", ""),
            request.get("LIBRARY") or None,
            int(interval) if interval.isdecimal() else None,
        )
    elif what == "stop" and _attach.is_attached():
        _attach.stop()
    else:
        raise ValueError(
            "ebb is not attached to this process" if what == "stop" else "unknown request"
        )


def _has_hung_up(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def _answer(client: socket.socket) -> bool:
    """Serves one connection. Returns False if the request asked this thread to end."""
    client.settimeout(_REQUEST_S)
    lines = client.recv(_REQUEST_MAX).decode("utf-8", "surrogateescape").split("\n")
    request = dict(line.split("=", 1) for line in lines if "=" in line)
    if request.get("REQUEST") == "end":
        return False
    if _has_hung_up(client):
        return True
    try:
        _serve(request)
        result = "done"
    except Exception as e:
        result = "failed\nREASON=" + ascii(str(e))[1:-1][:_REASON_MAX]
    client.send(f"KIND=attach\nSTATUS={result}\n".encode())
    return True


def _listen(s: socket.socket) -> None:
    from . import _attach

    _attach.block_signals()
    _permit_reading()
    is_over = False
    while not is_over:
        try:
            client = s.accept()[0]
        except OSError:
            return
        with client:
            try:
                is_over = not _answer(client)
            except Exception:  # the client disconnected or sent an invalid request
                continue


def _start_thread() -> None:
    global _thread
    if _socket is None or _pid != os.getpid():
        return
    _thread = threading.Thread(target=_listen, args=(_socket,), name="ebb-optin", daemon=True)
    try:
        _thread.start()
    except RuntimeError:
        _thread = None


def _end_thread() -> None:
    """Ends the thread before a fork, because Python 3.12 and later warn about threads during a
    fork."""
    global _thread
    thread, _thread = _thread, None
    if thread is None or _path is None or _pid != os.getpid():
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(_JOIN_S)
            s.connect(_path)
            s.send(b"REQUEST=end")
            thread.join(_JOIN_S)
    except OSError:
        pass


def _in_child() -> None:
    global _socket, _thread
    inherited, _socket, _thread = _socket, None, None
    if inherited is not None:
        inherited.close()


def close() -> None:
    """Ends the thread and removes the socket."""
    global _socket, _path
    _end_thread()
    if _socket is not None and _pid == os.getpid():
        _socket.close()
        _socket = None
        if _path is not None:
            os.unlink(_path)
            _path = None


def listen() -> None:
    """Creates the socket and starts the thread."""
    global _socket, _path, _pid
    path = os.path.join(folder(), f"attach.{os.getpid()}")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        try:
            os.unlink(path)  # an earlier process with the same pid left the file behind
        except FileNotFoundError:
            pass
        s.bind(path)
        s.listen(_WAITING)
    except OSError:
        s.close()
        raise
    _socket, _path, _pid = s, path, os.getpid()
    os.register_at_fork(
        before=_end_thread, after_in_parent=_start_thread, after_in_child=_in_child
    )
    atexit.register(close)
    _start_thread()


if os.environ.get("EBB_ATTACH") == "1" and not os.environ.get("EBB_SOCKET"):
    try:
        listen()
    except Exception:  # an error in this module must not prevent the program from starting
        pass
