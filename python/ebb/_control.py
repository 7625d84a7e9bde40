"""What is to be done where a step has ended: the allocators' figures, the censuses that are due,
and those that somebody asks for. Where no step ends, a thread of its own takes these."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import threading
import time
from typing import Optional

from . import _keepers, _truth
from ._wire import Request, Wire, off_streams, wire

_STEP_PATIENCE_S = 2.0  # a request waits so long for the end of a step
_BUDGET_S = 3.0
_AUTOMATIC_BUDGET_S = 0.5
_DOUBLE_AFTER = 128  # automatic ones at one interval: a long run does not fill the disk

_FORK_PATIENCE_S = 0.1  # so long a fork waits for the thread's end

_LOOK_MS = 250  # while steps are held back, the thread looks so often whether one is left over …
_LOOKS = 8  # … until it has found none so many times

_lock = threading.Lock()
_pending: list[Request] = []  # not taken by anybody yet
_due = 0.0  # when the thread is to answer them, if no step has
_answered = threading.Event()
_thread: Optional[threading.Thread] = None
_bell: Optional[int] = None  # a pipe that wakes the thread, and ends it when this is closed
_must_end = False  # the thread
_is_paused = False  # a fork is under way, and the thread has made room
_pid = 0  # of the process that listens
_is_started = False
_is_claimed = False  # somebody who knows the steps tells of them: the hooks on torch need not
_is_polled = False  # there could be no thread: every step looks
_step: Optional[int] = None
_every: Optional[int] = None  # None: the environment was not asked yet; 0: never
_taken = 0
_is_told_at_exit = False


def start() -> None:
    """Listens for requests from now on. Again is harmless; in a forked child it does nothing."""
    global _pid, _is_polled, _is_started
    w = wire()
    if _pid == os.getpid() and _thread is not None and _thread.is_alive():
        _is_started = not _must_end  # one that is about to end gets its successor later
        return
    _is_started = True
    if not w.is_there or not w.bind():
        return
    if _pid != os.getpid():
        _pid = os.getpid()
        _pending.clear()
    _is_polled = not _start_thread()


def _start_thread() -> bool:
    global _thread, _bell, _must_end
    w = wire()
    s = w.reply_socket
    if s is None:
        return False
    try:
        hears, _bell = map(off_streams, os.pipe())
    except OSError:
        return False
    _must_end = False
    _thread = threading.Thread(target=_listen, args=(w, s, hears), name="ebb-control", daemon=True)
    try:
        _thread.start()
    except RuntimeError:
        os.close(hears)
        os.close(_bell)
        _thread = _bell = None
        return False
    w.on_close = _wake
    _offer_help()
    return True


def _offer_help() -> None:
    """Steps may be held back while the thread looks after them, and no census counts them."""
    global _is_told_at_exit
    w = wire()
    can_help = _pid == os.getpid() and _bell is not None and not _every
    if can_help and not _is_told_at_exit:
        _is_told_at_exit = True
        atexit.register(_at_exit)
    w.help(_wake if can_help else None)


def _wake() -> None:
    try:
        os.write(_bell, b"\0")  # type: ignore[arg-type]
    except (OSError, TypeError):  # it is about to end
        pass


def _at_exit() -> None:
    wire().tell_held(is_over=True)


# ---- forks ----


def _before_fork() -> None:
    """Ends the thread for as long as a fork takes: Python 3.12 and later warn of any thread beside
    one, and rightly so, as what a thread has locked stays locked in the child."""
    global _bell, _must_end, _is_paused
    t, bell = _thread, _bell
    if t is None or bell is None or t is threading.current_thread():
        return
    _is_paused = _must_end = True
    _bell = None
    wire().help(None)
    os.close(bell)
    _answered.set()
    until = time.monotonic() + _FORK_PATIENCE_S
    t.join(_FORK_PATIENCE_S)
    # Python may be through with it before the kernel is
    while os.path.exists(f"/proc/self/task/{t.native_id}") and time.monotonic() < until:
        time.sleep(0.0001)


def _after_fork() -> None:
    global _is_paused, _is_polled, _is_started
    if not _is_paused:
        return
    _is_paused = False
    if _thread is not None and _thread.is_alive():  # it takes a census, and ends after it
        _is_started = False
    else:
        _is_polled = not _start_thread()


def _in_child() -> None:
    global _thread, _bell, _is_paused
    _thread, _bell, _is_paused = None, None, False


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


# ---- steps ----


def claim() -> None:
    """Who calls this will call at_step at the end of every step."""
    global _is_claimed
    _is_claimed = True


def release() -> None:
    """… and from now on does so no more."""
    global _is_claimed
    _is_claimed = False


def at_step(n: Optional[int] = None) -> None:
    """A step has ended. Whoever tells steps calls this after each; twice is harmless."""
    global _is_claimed
    _is_claimed = True
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
    _keepers.at_step(n)
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
    _offer_help()


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


def _wait_for_step() -> None:
    """Answers what no step has answered in time, also what an earlier thread has left."""
    _answered.clear()
    if not _pending or _must_end:
        return
    if not _answered.wait(max(0.0, _due - time.monotonic())):
        _answer("thread")


def _listen(w: Wire, s: socket.socket, bell: int) -> None:
    global _due
    try:
        # signals are for the main thread, whose system calls they are to interrupt
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poller = select.poll()
        poller.register(s, select.POLLIN)
        poller.register(bell, select.POLLIN)
        looks = 0  # for steps held back, that are still to be made
        while True:
            _wait_for_step()
            events = poller.poll(_LOOK_MS if looks else None)
            if w.reply_socket is not s or any(event != select.POLLIN for _, event in events):
                return
            if (bell, select.POLLIN) in events:
                os.read(bell, 64)
                looks = _LOOKS
            elif not events:
                looks = _LOOKS if w.tell_held() else looks - 1
                if looks == 0 and not w.rest():
                    looks = _LOOKS
            found = w.take("CENSUS")
            if found:
                with _lock:
                    _pending.extend(found)
                    _due = time.monotonic() + _STEP_PATIENCE_S
    except Exception:
        return
    finally:
        if _thread is threading.current_thread() and not _must_end:
            w.help(None)
        os.close(bell)
