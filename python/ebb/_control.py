"""What is to be done where a step has ended: the allocators' figures, the censuses that are due,
and those that somebody asks for. Where no step ends, a thread of its own takes these."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from typing import Optional

from . import _truth
from ._wire import Request, Wire, wire

_STEP_PATIENCE_S = 2.0  # a request waits so long for the end of a step
_BUDGET_S = 3.0
_AUTOMATIC_BUDGET_S = 0.5
_DOUBLE_AFTER = 128  # automatic ones at one interval: a long run does not fill the disk

_lock = threading.Lock()
_pending: list[Request] = []  # not taken by anybody yet
_answered = threading.Event()
_pid = 0  # of the process that listens
_is_started = False
_is_claimed = False  # somebody who knows the steps tells of them: the hooks on torch need not
_is_polled = False  # there could be no thread: every step looks
_step: Optional[int] = None
_every: Optional[int] = None  # None: the environment was not asked yet; 0: never
_taken = 0


def start() -> None:
    """Listens for requests from now on. Again is harmless; in a forked child it does nothing."""
    global _pid, _is_polled, _is_started
    _is_started = True
    w = wire()
    if not w.is_there or _pid == os.getpid() or not w.bind():
        return
    s = w.reply_socket
    if s is None:
        return
    _pid = os.getpid()
    _pending.clear()
    try:
        threading.Thread(target=_listen, args=(w, s), name="ebb-control", daemon=True).start()
    except RuntimeError:
        _is_polled = True


def claim() -> None:
    """Who calls this will call at_step at the end of every step."""
    global _is_claimed
    _is_claimed = True


def at_step(n: Optional[int] = None) -> None:
    """A step has ended. Whoever tells steps calls this after each; twice is harmless."""
    claim()
    _look(n)


def at_hooked_step(n: int) -> None:
    """The same from the hooks on torch, whose count is only the best where nobody knows better."""
    if not _is_claimed:
        _look(n)


def _look(n: Optional[int]) -> None:
    global _step
    if not _is_started:
        start()
    if _every is None:
        every(_every_of_environment())
    _truth.at_step(n)
    is_new, _step = n != _step, n
    if _is_polled and _pid == os.getpid():
        _pending.extend(wire().requests("CENSUS"))
    if _pending:
        _answer("step")
    if _every and is_new and n is not None and n % _every == 0:
        _automatic(n)


def every(n: int) -> None:
    """A census at every step that N divides; 0: at none."""
    global _every, _taken
    _every = max(0, int(n))
    _taken = 0


def _every_of_environment() -> int:
    text = os.environ.get("EBB_CENSUS_EVERY", "")
    return int(text) if text.isdecimal() else 0


def _automatic(n: int) -> None:
    global _every, _taken
    if not wire().is_there:
        return
    _take(n, "step", _AUTOMATIC_BUDGET_S)
    _taken += 1
    if _taken % _DOUBLE_AFTER == 0 and _every:
        _every *= 2


def _take(step: Optional[int], at: str, budget_s: float) -> Optional[str]:
    """Takes one and keeps it: the path, or None."""
    try:
        from . import _census  # few want one, and each import costs every job

        path = _census.keep(_census.take(step, at, budget_s))
    except Exception:
        return None
    wire().mark("census", step=step, path=path)
    return path


def _answer(at: str) -> None:
    if _pid != os.getpid():  # forked, perhaps while the thread held the lock
        return
    with _lock:
        requests = _pending[:]
        _pending.clear()
    if not requests:
        return
    w = wire()
    for r in requests:
        w.answer(r, "started")
    path = _take(_step, at, _BUDGET_S)
    for r in requests:
        w.answer(r, "done" if path else "failed", path)
    _answered.set()


def _listen(w: Wire, s: socket.socket) -> None:
    try:
        # signals are for the main thread, whose system calls they are to interrupt
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poller = select.poll()
        poller.register(s, select.POLLIN)
        while poller.poll()[0][1] == select.POLLIN:
            found = w.requests("CENSUS")
            if not found:
                continue
            _answered.clear()
            with _lock:
                _pending.extend(found)
            if not _answered.wait(_STEP_PATIENCE_S):
                _answer("thread")
    except Exception:
        return
