"""Does the work at the end of a step: sends the allocators' metrics, and takes censuses that are
due or requested. In a process without steps, a thread takes the censuses."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import threading
import time
from typing import Optional

from . import _containers, _truth
from ._wire import Request, Wire, above_streams, wire

_STEP_PATIENCE_S = 2.0  # maximum seconds that a census request waits for the end of a step
_BUDGET_S = 3.0
_AUTOMATIC_BUDGET_S = 0.5
# after each series of this many automatic censuses, the interval between them is doubled, so that
# their files do not fill the disk
_DOUBLE_AFTER = 128

_FORK_PATIENCE_S = 0.1  # maximum seconds that a fork waits for the thread to end

# interval in milliseconds at which the thread checks whether a step is held back (Wire.hold)
_CHECK_MS = 250
_CHECKS = 8  # after this many checks in a row that find no held-back step, the thread sleeps

_lock = threading.Lock()
_pending: list[Request] = []  # requests that have not been answered yet
_due = 0.0  # if no step has ended by this time, the thread answers the pending requests itself
_answered = threading.Event()
_thread: Optional[threading.Thread] = None
_bell: Optional[int] = None  # pipe that wakes the thread; closing it ends the thread
_must_end = False
_is_paused = False  # True during a fork if the thread was ended for the fork
_pid = 0  # pid of the process that listens for requests
_is_started = False
# True if the job or a callback reports the steps; the hooks on torch must then not report them
_is_claimed = False
_is_polled = False  # True if no thread could be started, so that every step checks for requests
_step: Optional[int] = None
# number of steps between automatic censuses: 0 if there are none, None before the environment
# variable is read
_every: Optional[int] = None
_taken = 0
_is_sent_at_exit = False


def start() -> None:
    """Starts listening for requests. Has no effect if the process already listens, or is a forked
    child."""
    global _pid, _is_polled, _is_started
    w = wire()
    if _pid == os.getpid() and _thread is not None and _thread.is_alive():
        _is_started = not _must_end  # if the thread is about to end, another one is started later
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
        wakes, _bell = map(above_streams, os.pipe())
    except OSError:
        return False
    _must_end = False
    _thread = threading.Thread(target=_listen, args=(w, s, wakes), name="ebb-control", daemon=True)
    try:
        _thread.start()
    except RuntimeError:
        os.close(wakes)
        os.close(_bell)
        _thread = _bell = None
        return False
    w.on_close = _wake
    _offer_help()
    return True


def _offer_help() -> None:
    """Allows the wire to hold back steps and to send them together, if a thread can send them
    later. If censuses are due every N steps, each step is sent at once."""
    global _is_sent_at_exit
    w = wire()
    can_help = _pid == os.getpid() and _bell is not None and not _every
    if can_help and not _is_sent_at_exit:
        _is_sent_at_exit = True
        atexit.register(_at_exit)
    w.help(_wake if can_help else None)


def _wake() -> None:
    try:
        os.write(_bell, b"\0")  # type: ignore[arg-type]
    except (OSError, TypeError):  # the thread is about to end
        pass


def _at_exit() -> None:
    wire().send_held(is_exiting=True)


def stop() -> None:
    """Ends the thread and resets all state of the run."""
    global _thread, _is_started, _is_claimed, _is_polled, _step, _every, _is_sent_at_exit
    _end_thread()
    _thread = None
    _is_started = _is_claimed = _is_polled = _is_sent_at_exit = False
    _step = _every = None
    _pending.clear()
    atexit.unregister(_at_exit)


# ---- forks ----


def _end_thread() -> bool:
    """Ends the thread. Returns False if there is none."""
    global _bell, _must_end
    t, bell = _thread, _bell
    if t is None or bell is None or t is threading.current_thread():
        return False
    _must_end = True
    _bell = None
    wire().help(None)
    os.close(bell)
    _answered.set()
    until = time.monotonic() + _FORK_PATIENCE_S
    t.join(_FORK_PATIENCE_S)
    # the kernel may remove the thread slightly later than Python does
    while os.path.exists(f"/proc/self/task/{t.native_id}") and time.monotonic() < until:
        time.sleep(0.0001)
    return True


def _before_fork() -> None:
    """Ends the thread for the duration of a fork. Python 3.12 and later warn about threads during a
    fork, because a lock that another thread holds stays locked in the child for ever."""
    global _is_paused
    _is_paused = _end_thread()


def _after_fork() -> None:
    global _is_paused, _is_polled, _is_started
    if not _is_paused:
        return
    _is_paused = False
    # the thread is still taking a census, and will end after it
    if _thread is not None and _thread.is_alive():
        _is_started = False
    else:
        _is_polled = not _start_thread()


def _in_child() -> None:
    global _thread, _bell, _is_paused
    _thread, _bell, _is_paused = None, None, False


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


# ---- steps ----


def claim() -> None:
    """Declares that the caller will call at_step at the end of every step."""
    global _is_claimed
    _is_claimed = True


def release() -> None:
    """Declares that the caller will no longer call at_step."""
    global _is_claimed
    _is_claimed = False


def at_step(n: Optional[int] = None) -> None:
    """Called by every source of steps after each step. Calling it twice for a step is harmless."""
    global _is_claimed
    _is_claimed = True
    _at_step_end(n)


def at_hooked_step(n: int) -> None:
    """Like at_step, but called by the hooks on torch. Has no effect if the job or a callback
    reports the steps."""
    if not _is_claimed:
        _at_step_end(n)


def _at_step_end(n: Optional[int]) -> None:
    global _step
    if not _is_started:
        start()
    if _every is None:
        every(_every_of_environment())
    _truth.at_step(n)
    _containers.at_step(n)
    is_new, _step = n != _step, n
    if _is_polled and _pid == os.getpid():
        _pending.extend(wire().requests("CENSUS"))
    if _pending:
        _answer("step")
    if _every and is_new and n is not None and n % _every == 0:
        _automatic(n)


def every(n: int) -> None:
    """Sets the number of steps between automatic censuses; 0 disables them."""
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
    """Takes a census and returns the path of its file, or None if that failed."""
    try:
        from . import _census  # imported here, because few jobs take a census

        path = _census.keep(_census.take(step, at, budget_s))
    except Exception:
        return None
    wire().mark("census", step=step, path=path)
    return path


def _answer(at: str) -> None:
    if _pid != os.getpid():  # the process was forked, possibly while the thread held the lock
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
    """Waits until a step answers the pending requests, and answers them itself if no step does so
    in time. An earlier thread may have left requests behind."""
    _answered.clear()
    if not _pending or _must_end:
        return
    if not _answered.wait(max(0.0, _due - time.monotonic())):
        _answer("thread")


def _listen(w: Wire, s: socket.socket, bell: int) -> None:
    global _due
    try:
        # signals are blocked in this thread, so that they interrupt system calls of the main thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poller = select.poll()
        poller.register(s, select.POLLIN)
        poller.register(bell, select.POLLIN)
        checks = 0  # remaining checks for a step that was held back; at 0 the thread sleeps
        while True:
            _wait_for_step()
            events = poller.poll(_CHECK_MS if checks else None)
            if w.reply_socket is not s or any(event != select.POLLIN for _, event in events):
                return
            if (bell, select.POLLIN) in events:
                os.read(bell, 64)
                checks = _CHECKS
            elif not events:
                checks = _CHECKS if w.send_held() else checks - 1
                if checks == 0 and not w.rest():
                    checks = _CHECKS
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
