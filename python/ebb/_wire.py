"""The wire between this process and ebb: marks out, requests in.

One datagram a mark, to the socket in $EBB_SOCKET (docs/marks.md). Nothing here raises into the
job, prints, or waits for longer than a moment; without a socket everything is a no-op. A process
that was forked from one that speaks stays silent: it is a worker. One that was spawned afresh
speaks for itself when it is told to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import socket
import sys
import threading
import time
import weakref
from typing import Any, Callable, Optional, Union

from . import _process

Value = Union[str, int, float, bool, None]

_TEXT_MAX = 8192
# A burst finds the receiver's queue full (10 datagrams on many machines). What must arrive may
# wait so long, and so may a step, while all that steps have waited is no more than this and this
# share of the time. All the rest is dropped.
_PATIENCE_S = 0.2
_STEPS_WAIT_S = 1.0
_STEPS_WAIT_SHARE = 0.002
# Trouble of the moment, much of it that of a machine short of memory. All else is for ever.
_PASSING = (errno.ENOBUFS, errno.ENOMEM, errno.EMSGSIZE, errno.EINTR)
_NOT_IN_KEYS = re.compile("[^A-Z0-9_]")
_KEYS_KEPT = 256
# ebb looks at memory five times a second at most: marks of steps that follow each other faster than
# this would tell it nothing. What is held back is told when nothing has come after it for as long.
_STEPS_APART_S = 0.1
_STEPS_TOLD = 256  # at most by one mark (mark/row.h)
_STEPS_AT_ONCE = 10  # the first of a process are told one by one, however fast

# What a report of a leak has to name, where the job has imported it.
_VERSIONED = ("torch", "transformers", "accelerate", "lightning", "datasets", "numpy", "PIL")

_pid = os.getpid()  # kept: between pieces of real work a system call is dear


def _versions() -> dict[str, Value]:
    """python_version="3.11.2", torch_version=…: of what is imported; nothing is for this."""
    found: dict[str, Value] = {"python_version": sys.version.split()[0]}
    for name in _VERSIONED:
        try:
            version = getattr(sys.modules.get(name), "__version__", None)
        except Exception:  # a module may answer with anything
            continue
        if isinstance(version, str):
            found[f"{name}_version"] = str(version)[:64]
    return found


def versions_text() -> str:
    """The same as lines to put behind a mark."""
    return "".join(f"\n{_key(name)}={_clean(value)}" for name, value in _versions().items())


def _is_child() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_is_child)


def pid() -> int:
    """This process, at the price of no system call."""
    return _pid


def _clean(value: Value) -> str:
    """One line of printable text: a value cannot make lines of its own."""
    if isinstance(value, bool):
        return "1" if value else "0"
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # of a value's own making, or a number too long to be written
        text = ""
    if len(text) > 1024:
        text = text[:1024]
    if text.isascii() and text.isprintable():
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else " " for c in text)


_keys: dict[str, str] = {}


def _key(name: str) -> str:
    """As keys are written: TRAIN_LOSS of train/loss."""
    key = _keys.get(name)
    if key is None:
        key = _NOT_IN_KEYS.sub("_", name.upper())[:64]
        key = key if key[:1].isalpha() else "X" + key
        if len(_keys) < _KEYS_KEPT:
            _keys[name] = key
    return key


def _fit(lines: list[str]) -> str:
    """As many of LINES as one datagram holds: a part is better than nothing."""
    room, kept = _TEXT_MAX + 1, []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def _nothing() -> None:
    pass


# Its number, the epoch, more lines; which row of steps it is in, each of them the one after the one
# before; when it ended.
_Step = tuple[int, Optional[float], str, int, float]


def off_streams(fd: int) -> int:
    """FD under a number that is no standard stream's: a job that runs with one of them closed must
    not print into a file of ours."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def datagram_socket() -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    return s if s.fileno() > 2 else socket.socket(fileno=off_streams(s.detach()))


class Request:
    """Something ebb asks for: CHECKPOINT, CENSUS or STOP, with the number to answer with. REPLY is
    the socket of another process than the one at $EBB_SOCKET that wants the answer."""

    __slots__ = ("what", "id", "reply")

    def __init__(self, what: str, id: str, reply: Optional[str] = None) -> None:
        self.what = what
        self.id = id
        self.reply = reply


class Wire:
    """This process's end. Use `wire()`; there is one for each process."""

    def __init__(self, process: Optional[int] = None) -> None:
        self._pid = process or os.getpid()
        self._path = os.environ.get("EBB_SOCKET") or None
        self._socket: Optional[socket.socket] = None
        self._replies: Optional[socket.socket] = None
        self._mail = select.poll()  # says whether something waits there; used under the lock
        self._reply_path: Optional[str] = None
        self._lock = threading.Lock()
        self.waiting: list[Request] = []  # that came in, and nobody has taken
        self._is_dead = self._path is None
        self._steps_wait_s = _STEPS_WAIT_S  # that steps may still wait, at this time:
        self._steps_waited_at = time.monotonic()
        self._step: Optional[_Step] = None  # the newest
        self._told: Optional[_Step] = None  # the newest that is with ebb
        self._steps_told = 0  # marks
        self._step_due = 0.0  # not before then another one
        self._row_end = 0  # steps before this one may be held back the short way, …
        self._epoch_end = 0.0  # … if they are before this
        self._substep_due = 0.0
        self._telling = threading.RLock()  # so that steps go out in order
        self._has_helper = False
        self._is_helped = False  # the helper knows that steps are held back
        self._wake: Callable[[], None] = _nothing
        self.on_close: Callable[[], None] = _nothing  # wakes who reads what comes in
        self.is_told_by_hand = False  # the job tells its steps itself
        self.trainings: dict[int, "weakref.ref[Any]"] = {}  # under way, with a callback

    # ---- out ----

    @property
    def has_speaker(self) -> bool:
        """The job, or a callback in its trainer, tells its steps: the hooks keep silent then."""
        return self.is_told_by_hand or bool(self.trainings)

    def begin_training(self, training: Any) -> None:
        """From now on its callback tells the steps, for as long as it lives."""
        key, trainings = id(training), self.trainings
        trainings[key] = weakref.ref(training, lambda _: trainings.pop(key, None))

    def end_training(self, training: Any) -> None:
        self.trainings.pop(id(training), None)

    @property
    def is_there(self) -> bool:
        """Is there anybody to speak to?"""
        return not self._is_dead and self._pid == _pid

    @property
    def is_inherited(self) -> bool:
        """Was this process forked from the one that the wire belongs to?"""
        return self._pid != _pid

    def _open(self) -> Optional[socket.socket]:
        if self._socket is None:
            try:
                s = datagram_socket()
                s.setblocking(False)
                s.connect(self._path)  # type: ignore[arg-type]
            except (OSError, ValueError):
                self._is_dead = True
                return None
            self._socket = s
        return self._socket

    def send(self, text: str, must_arrive: bool = False) -> bool:
        """Sends one datagram of KEY=VALUE lines. False: it did not arrive."""
        if self._step is not self._told:
            self._tell_step(None)
        return self._deliver(text, _PATIENCE_S if must_arrive else 0.0)

    def send_step(self, text: str, is_last: bool = False) -> bool:
        """The same for a step: none is lost to a receiver that is only a moment behind, and one
        that stands still does not hold up the job."""
        if self._step is not self._told:
            self._tell_step(None)
        return self._deliver(text, _PATIENCE_S if is_last else None)

    # ---- steps that may wait ----

    def step(
        self, n: int, epoch: Optional[float] = None, tail: str = "", is_last: bool = False
    ) -> bool:
        """Step N has ended; TAIL are more lines. True: it is told. False: it was too soon after
        another one. It is then told with what comes next, or after a moment, and whoever calls this
        need not do either what is for the end of a step."""
        now, last = time.monotonic(), self._step
        if (
            last is not None
            and n == last[0] + 1
            and tail == last[2]
            and (epoch is None if last[1] is None else epoch is not None)
            and (epoch is None or int(epoch) == int(last[1]))  # type: ignore[arg-type]
        ):
            self._step = (n, epoch, tail, last[3], now)
            told = self._told
            if (
                now < self._step_due
                and self._has_helper
                and told is not None
                and n - told[0] < _STEPS_TOLD
                and self._steps_told >= _STEPS_AT_ONCE
                and not is_last
                and self._pid == _pid
            ):
                self._row_end = told[0] + _STEPS_TOLD
                self._epoch_end = 0.0 if epoch is None else int(epoch) + 1.0
                self._ask_help()
                return False
        else:
            if last is not self._told:
                self._tell_step(None)
            self._step = (n, epoch, tail, 0 if last is None else last[3] + 1, now)
        if self.is_there:
            self._tell_step(_PATIENCE_S if is_last else None)
        return True

    def hold(self, n: int, tail: Optional[str], epoch: Optional[float] = None) -> bool:
        """Step N has ended too soon after another one, which had the very same TAIL, and is held
        back. False: it may not be, or all is to be looked at; `step` knows. Between pieces of real
        work every line of Python is dear, and this is all that most short steps take."""
        last, now = self._step, time.monotonic()
        if (
            n < self._row_end
            and now < self._step_due
            and last is not None
            and n == last[0] + 1
            and tail is last[2]
            and self._pid == _pid
        ):
            before = last[1]
            if epoch is None or before is None:
                if epoch is not before:
                    return False
            elif not before <= epoch < self._epoch_end:
                return False
            self._step = (n, epoch, last[2], last[3], now)
            if not self._is_helped:  # it told the one before and rested, just now
                self._ask_help()
            return True
        return False

    def _ask_help(self) -> None:
        if not self._is_helped:
            self._is_helped = True
            self._wake()

    def substep(self, n: int, tail: str = "") -> None:
        """A part of step N has ended. They are not needed one by one."""
        now = time.monotonic()
        if self._has_helper and now < self._substep_due:
            return
        self._substep_due = now + _STEPS_APART_S
        self.send(f"KIND=substep\nSTEP={n}{tail}")

    def _tell_step(self, patience_s: Optional[float]) -> None:
        if not self.is_there:
            return
        with self._telling:
            step, told = self._step, self._told
            if step is None or step is told:
                return
            n, epoch, tail, row, at = step
            text = f"KIND=step\nSTEP={n}" + ("" if epoch is None else f"\nEPOCH={epoch!r}") + tail
            if told is not None and told[3] == row and 1 < n - told[0] <= _STEPS_TOLD:
                text += f"\nSTEPS={n - told[0]}\nSECONDS={at - told[4]:.6f}"
            self._step_due, self._row_end = time.monotonic() + _STEPS_APART_S, 0
            self._steps_told += 1
            if self._deliver(text, patience_s):
                self._told = step

    def tell_held(self, is_over: bool = False) -> bool:
        """Tells the step that is held back, if no other has come in its time, or all IS_OVER.
        False: there is none."""
        if self._step is self._told:
            return False
        if is_over or time.monotonic() >= self._step_due:
            self._tell_step(_PATIENCE_S if is_over else 0.0)
        return True

    def help(self, wake: Optional[Callable[[], None]]) -> None:
        """From now on somebody reads what comes in, and calls tell_held several times a second from
        when WAKE was called to when it calls rest and gets True. None: no more."""
        self._has_helper = wake is not None
        self._row_end = 0
        self._wake = wake or _nothing
        self._is_helped = False
        if wake is None and self._step is not self._told:
            self._tell_step(None)

    def rest(self) -> bool:
        """May the helper wait to be woken?"""
        self._is_helped = False
        if self._step is self._told:
            return True
        self._is_helped = True  # one was held back in this moment
        return False

    def _deliver(self, text: str, patience_s: Optional[float]) -> bool:
        """PATIENCE_S: None is that of steps."""
        if not self.is_there:
            return False
        s = self._socket or self._open()
        if s is None:
            return False
        data = text.encode("utf-8", "replace")
        if len(data) > _TEXT_MAX:
            return False
        try:
            s.send(data)
            return True
        except BlockingIOError:
            if patience_s is None:
                return self._send_step_slowly(s, data)
            return patience_s > 0 and self._send_slowly(s, data)
        except socket.timeout:  # another thread's patience, which is the socket's meanwhile
            return False
        except OSError as error:
            self._is_dead = error.errno not in _PASSING  # else the receiver is gone
            return False

    def send_figures(self, text: str) -> bool:
        """Sends what was read here without the job's doing: none of its own marks, and no news of
        how far it is."""
        return self._deliver(text, 0.0)

    def _send_slowly(self, s: socket.socket, data: bytes) -> bool:
        with self._lock:
            try:
                s.settimeout(_PATIENCE_S)
                s.send(data)
                return True
            except OSError:
                return False
            finally:
                s.setblocking(False)

    def _send_step_slowly(self, s: socket.socket, data: bytes) -> bool:
        now = time.monotonic()
        earned_s = (now - self._steps_waited_at) * _STEPS_WAIT_SHARE
        self._steps_wait_s = min(_STEPS_WAIT_S, self._steps_wait_s + earned_s)
        self._steps_waited_at = now
        if self._steps_wait_s <= 0:
            return False
        has_arrived = self._send_slowly(s, data)
        self._steps_wait_s -= time.monotonic() - now
        return has_arrived

    def mark(self, kind: str, must_arrive: bool = False, /, **values: Value) -> bool:
        """Sends a mark: KIND and the values, whose names become keys. None is left out."""
        if not self.is_there:
            return False
        lines = ["KIND=" + _clean(kind)]
        for key, value in values.items():
            if value is not None:
                lines.append(f"{_key(key)}={_clean(value)}")
        text = "\n".join(lines)
        if len(text) > _TEXT_MAX // 4:  # a character has up to four bytes
            text = _fit(lines)
        if kind == "step":
            return self.send_step(text, must_arrive)
        return self.send(text, must_arrive)

    # ---- in ----

    def bind(self) -> bool:
        """Makes the socket on which this process can be asked, for whoever finds it by its name."""
        if not self.is_there:
            return False
        if self._replies is None:
            path = f"{self._path}.{self._pid}"
            try:
                s = datagram_socket()
                s.setblocking(False)
                try:
                    os.unlink(path)  # of an earlier process with this number
                except OSError:
                    pass
                s.bind(path)
            except (OSError, ValueError):
                return False
            self._mail.register(s, select.POLLIN)
            self._replies, self._reply_path = s, path
        return True

    def listen(self, rank: Optional[int] = None, role: str = "rank") -> bool:
        """Says hello, so that ebb can ask this process for checkpoints. Once is enough; again is
        harmless."""
        if not self.bind():
            return False
        return self.mark(
            "hello", True, reply=self._reply_path, rank=rank, role=role, **_versions()
        )

    def _take(self) -> None:
        # asked first: an exception costs more than the question
        while self._replies is not None and self._pid == _pid and self._mail.poll(0):
            try:
                data = self._replies.recv(_TEXT_MAX)
            except OSError:
                return
            first, *more = data.decode("utf-8", "replace").strip().split("\n")
            what, equals, number = first.partition("=")
            reply = next((line[6:] for line in more if line.startswith("REPLY=")), None)
            if equals and what in ("CHECKPOINT", "CENSUS", "STOP"):
                self.waiting.append(Request(what, number, reply))

    def requests(self, *what: str) -> list[Request]:
        """Takes the requests of these kinds that have come in. Cheap when there is none."""
        if self.is_inherited:  # perhaps with a lock that nobody here will ever open
            return []
        if self._has_helper and not self.waiting:
            return []
        return self.take(*what)

    def take(self, *what: str) -> list[Request]:
        """The same for the helper, which reads them."""
        with self._lock:
            self._take()
            if not self.waiting:
                return []
            found = [r for r in self.waiting if r.what in what]
            if found:
                self.waiting = [r for r in self.waiting if r.what not in what]
        return found

    def answer(self, request: Request, status: str, path: Optional[str] = None) -> bool:
        """STATUS is started, done or failed."""
        if request.reply is None:
            return self.mark("ack", True, id=request.id, status=status, path=path)
        lines = ["KIND=ack", f"ID={_clean(request.id)}", f"STATUS={status}", f"PID={self._pid}"]
        if path is not None:
            lines.append(f"PATH={_clean(path)}")
        try:
            with datagram_socket() as s:
                s.settimeout(_PATIENCE_S)
                s.sendto("\n".join(lines).encode("utf-8", "replace"), request.reply)
            return True
        except (OSError, ValueError):
            return False

    @property
    def reply_socket(self) -> Optional[socket.socket]:
        """To wait on in a thread; None while nobody listens."""
        return self._replies

    def close(self) -> None:
        sockets, path = (self._socket, self._replies), self._reply_path
        self._socket = self._replies = self._reply_path = None
        self._mail = select.poll()
        self.on_close()  # who waits on the number of a socket would soon wait on another file
        for s in sockets:
            if s is not None:
                s.close()
        if path and self._pid == _pid:
            try:
                os.unlink(path)
            except OSError:
                pass


_wire: Optional[Wire] = None


def wire() -> Wire:
    """The wire of this process. In a forked child it is the parent's, which stays silent there."""
    global _wire
    if _wire is None:
        _wire = Wire(_process.take_hooked())
    return _wire


def reset(make: Callable[[], Wire] = Wire) -> None:
    """Forgets the wire: a process that was forked on purpose to be a rank of its own, and tests."""
    global _wire
    if _wire is not None:
        _wire.close()
    _wire = None
    _process.take_hooked()
    if make is not Wire:
        _wire = make()


def rank_of_environment() -> Optional[int]:
    """The rank as launchers tell it; None outside of any."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"):
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None
