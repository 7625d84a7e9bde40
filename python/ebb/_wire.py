"""The wire between this process and ebb. It sends marks and receives requests.

Each mark is one datagram to the socket in $EBB_SOCKET (docs/reference/marks.md). Nothing here
raises into the job, prints, or blocks for longer than a moment. If EBB_SOCKET is not set, all
functions do nothing. A process that was forked by a sender of marks is a worker and sends nothing.
A spawned process may send marks.
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
# How long to wait while the receiver's queue is full, for example after a burst of marks; on many
# machines the queue holds only 10 datagrams. A mark that must arrive waits for at most _PATIENCE_S.
# A step does too, but all steps together wait no longer than an allowance, which starts at
# _STEPS_WAIT_S and grows by _STEPS_WAIT_SHARE of the time that passes. Other marks are dropped at
# once.
_PATIENCE_S = 0.2
_STEPS_WAIT_S = 1.0
_STEPS_WAIT_SHARE = 0.002
# errors after which the next mark may succeed, mostly a lack of memory; after any other error,
# nothing more is sent
_PASSING = (errno.ENOBUFS, errno.ENOMEM, errno.EMSGSIZE, errno.EINTR)
_NOT_IN_KEYS = re.compile("[^A-Z0-9_]")
_KEYS_KEPT = 256
# Minimum seconds between two step marks; more marks would be of no use, because ebb samples memory
# at most five times per second. A step that is held back is sent after this time if no other step
# follows.
_STEPS_APART_S = 0.1
STEPS_PER_MARK = 256  # maximum number of steps that one mark may stand for (mark/row.h)
# number of step marks that a process sends before any step is held back
_STEPS_AT_ONCE = 10

# Packages whose versions are sent if the job has imported them, because known leaks depend on
# versions.
_VERSIONED = (
    "torch",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "keras",
    "tensorflow",
    "jax",
    "optax",
    "xgboost",
    "lightgbm",
    "sklearn",
    "ray",
    "datasets",
    "numpy",
    "PIL",
)

_pid = os.getpid()  # cached, because system calls are slow in a busy process


def _versions() -> dict[str, Value]:
    """Returns the versions of imported modules: python_version="3.11.2", torch_version=…"""
    found: dict[str, Value] = {"python_version": sys.version.split()[0]}
    for name in _VERSIONED:
        try:
            version = getattr(sys.modules.get(name), "__version__", None)
        except Exception:  # reading a module's version can raise any exception
            continue
        if isinstance(version, str):
            found[f"{name}_version"] = str(version)[:64]
    return found


def versions_text() -> str:
    """Returns the versions of imported modules as lines to append to a mark."""
    return "".join(f"\n{_key(name)}={clean(value)}" for name, value in _versions().items())


def _is_child() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_is_child)


def pid() -> int:
    """Returns the pid of this process, without a system call."""
    return _pid


def clean(value: Value) -> str:
    """Returns VALUE as printable text on one line, so that it cannot add lines to a mark."""
    if isinstance(value, bool):
        return "1" if value else "0"
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # str() raised an exception, or the value is an integer with too many digits
        text = ""
    if len(text) > 1024:
        text = text[:1024]
    if text.isascii() and text.isprintable():
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else " " for c in text)


_keys: dict[str, str] = {}


def _key(name: str) -> str:
    """Converts NAME to a key of a mark: train/loss becomes TRAIN_LOSS."""
    key = _keys.get(name)
    if key is None:
        key = _NOT_IN_KEYS.sub("_", name.upper())[:64]
        key = key if key[:1].isalpha() else "X" + key
        if len(_keys) < _KEYS_KEPT:
            _keys[name] = key
    return key


def _fit(lines: list[str]) -> str:
    """Joins LINES, but drops the last lines if the mark would not fit in one datagram."""
    room, kept = _TEXT_MAX + 1, []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def nothing() -> None:
    pass


# A step: its number, its epoch, the further lines of its mark, the number of its row, and the time
# when it ended. A row is a sequence of consecutive steps with equal further lines.
_Step = tuple[int, Optional[float], str, int, float]


def above_streams(fd: int) -> int:
    """Moves FD above the standard streams. If the job has closed a standard stream, FD may have the
    number of that stream, and the job would then write its output to FD."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def datagram_socket() -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    return s if s.fileno() > 2 else socket.socket(fileno=above_streams(s.detach()))


class Request:
    """A request from ebb (CHECKPOINT, CENSUS or STOP), with the id to use in the answer. REPLY is
    the socket to which the answer is sent (default: $EBB_SOCKET)."""

    __slots__ = ("what", "id", "reply")

    def __init__(self, what: str, id: str, reply: Optional[str] = None) -> None:
        self.what = what
        self.id = id
        self.reply = reply


class Wire:
    """This process's end of the wire. A process has one wire, which `wire()` returns."""

    def __init__(self, process: Optional[int] = None) -> None:
        self._pid = process or os.getpid()
        self._path = _process.variable("EBB_SOCKET")
        self._socket: Optional[socket.socket] = None
        self._replies: Optional[socket.socket] = None
        # polls the socket for requests; accessed only by a thread that holds the lock
        self._mail = select.poll()
        self._reply_path: Optional[str] = None
        self._lock = threading.Lock()
        self.waiting: list[Request] = []  # requests that were received but not yet handled
        self._is_dead = self._path is None
        # the allowance of steps (see _STEPS_WAIT_S), in seconds, at the time _steps_waited_at
        self._steps_wait_s = _STEPS_WAIT_S
        self._steps_waited_at = time.monotonic()
        self._step: Optional[_Step] = None  # the newest step
        self._sent: Optional[_Step] = None  # the newest step that was sent
        self._steps_sent = 0
        self._step_due = 0.0  # time before which steps are held back
        self._row_end = 0  # hold() accepts only step numbers below this one
        self._epoch_end = 0.0  # hold() accepts only epochs below this one
        self._substep_due = 0.0
        # held while a step is sent, so that steps arrive in order
        self._step_lock = threading.RLock()
        self._has_helper = False
        # True from the time when a held-back step wakes the helper until the helper rests
        self._is_helped = False
        self._wake: Callable[[], None] = nothing
        # called by close(); wakes the thread that reads requests
        self.on_close: Callable[[], None] = nothing
        self.is_sent_by_job = False  # True if the job sends its steps itself
        # Called when the job or a callback begins to send steps. A source of lower priority, such
        # as tqdm, then stops counting.
        self.before_source: Callable[[], None] = nothing
        # training runs in progress for which a callback sends the steps
        self.trainings: dict[int, "weakref.ref[Any]"] = {}

    # ---- sending ----

    @property
    def has_source(self) -> bool:
        """Returns True if the job or a callback in its trainer sends the steps. The hooks must then
        send none."""
        return self.is_sent_by_job or bool(self.trainings)

    def claim_steps(self) -> None:
        """Records that the job sends its steps itself from now on."""
        self.is_sent_by_job = True
        self.before_source()

    def begin_training(self, training: Any) -> None:
        """Records that the callback of a training run sends the steps from now on, until the object
        TRAINING is freed."""
        self.before_source()
        key, trainings = id(training), self.trainings
        trainings[key] = weakref.ref(training, lambda _: trainings.pop(key, None))

    def end_training(self, training: Any) -> None:
        self.trainings.pop(id(training), None)

    @property
    def is_there(self) -> bool:
        """Returns True if this process has a socket to which it can send marks."""
        return not self._is_dead and self._pid == _pid

    @property
    def is_inherited(self) -> bool:
        """Returns True if this wire belongs to a process from which this process was forked."""
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
        """Sends one datagram of KEY=VALUE lines. Returns False if it was not delivered."""
        if self._step is not self._sent:
            self._send_step(None)
        return self._deliver(text, _PATIENCE_S if must_arrive else 0.0)

    def send_step(self, text: str, is_last: bool = False) -> bool:
        """Like send, but for a step. Waits if the receiver is briefly behind, so that no step is
        lost, but gives up if the receiver hangs."""
        if self._step is not self._sent:
            self._send_step(None)
        return self._deliver(text, _PATIENCE_S if is_last else None)

    # ---- steps that may be held back ----

    def step(
        self, n: int, epoch: Optional[float] = None, tail: str = "", is_last: bool = False
    ) -> bool:
        """Reports that step N has ended. TAIL contains further lines for its mark. Returns True if
        the step was sent. Returns False if it followed another step too quickly: the step is then
        sent later, with the next mark or after a short time. The caller then skips its own work at
        the end of a step."""
        now, last = time.monotonic(), self._step
        if (
            last is not None
            and n == last[0] + 1
            and tail == last[2]
            and (epoch is None if last[1] is None else epoch is not None)
            and (epoch is None or int(epoch) == int(last[1]))  # type: ignore[arg-type]
        ):
            self._step = (n, epoch, tail, last[3], now)
            sent = self._sent
            if (
                now < self._step_due
                and self._has_helper
                and sent is not None
                and n - sent[0] < STEPS_PER_MARK
                and self._steps_sent >= _STEPS_AT_ONCE
                and not is_last
                and self._pid == _pid
            ):
                self._row_end = sent[0] + STEPS_PER_MARK
                self._epoch_end = 0.0 if epoch is None else int(epoch) + 1.0
                self._wake_helper()
                return False
        else:
            if last is not self._sent:
                self._send_step(None)
            self._step = (n, epoch, tail, 0 if last is None else last[3] + 1, now)
        if self.is_there:
            self._send_step(_PATIENCE_S if is_last else None)
        return True

    def hold(self, n: int, tail: Optional[str], epoch: Optional[float] = None) -> bool:
        """Holds step N back if it quickly follows a step with the same TAIL. Returns False if the
        step cannot be held back here; the caller must then call `step`. Most short steps take only
        this path, so it is as short as possible: every line of Python is slow in a busy process."""
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
            # otherwise the helper is already awake and will send this step
            if not self._is_helped:
                self._wake_helper()
            return True
        return False

    def _wake_helper(self) -> None:
        if not self._is_helped:
            self._is_helped = True
            self._wake()

    def substep(self, n: int, tail: str = "") -> None:
        """Reports that a part of step N has ended. If several parts end in quick succession, only
        the first report is sent."""
        now = time.monotonic()
        if self._has_helper and now < self._substep_due:
            return
        self._substep_due = now + _STEPS_APART_S
        self.send(f"KIND=substep\nSTEP={n}{tail}")

    def _send_step(self, patience_s: Optional[float]) -> None:
        if not self.is_there:
            return
        with self._step_lock:
            step, sent = self._step, self._sent
            if step is None or step is sent:
                return
            n, epoch, tail, row, at = step
            text = f"KIND=step\nSTEP={n}" + ("" if epoch is None else f"\nEPOCH={epoch!r}") + tail
            if sent is not None and sent[3] == row and 1 < n - sent[0] <= STEPS_PER_MARK:
                text += f"\nSTEPS={n - sent[0]}\nSECONDS={at - sent[4]:.6f}"
            self._step_due, self._row_end = time.monotonic() + _STEPS_APART_S, 0
            self._steps_sent += 1
            if self._deliver(text, patience_s):
                self._sent = step

    def send_held(self, is_exiting: bool = False) -> bool:
        """Sends the step that is held back, if it is due or IS_EXITING is True. Returns False if no
        step is held back."""
        if self._step is self._sent:
            return False
        if is_exiting or time.monotonic() >= self._step_due:
            self._send_step(_PATIENCE_S if is_exiting else 0.0)
        return True

    def help(self, wake: Optional[Callable[[], None]]) -> None:
        """Sets the function that wakes the helper. The helper is a thread that reads requests and,
        once woken, calls send_held several times per second until rest returns True. None means
        that there is no helper."""
        self._has_helper = wake is not None
        self._row_end = 0
        self._wake = wake or nothing
        self._is_helped = False
        if wake is None and self._step is not self._sent:
            self._send_step(None)

    def rest(self) -> bool:
        """Returns True if the helper may sleep until it is woken again."""
        self._is_helped = False
        if self._step is self._sent:
            return True
        self._is_helped = True  # another thread has held back a step since the last check
        return False

    def _deliver(self, text: str, patience_s: Optional[float]) -> bool:
        """Sends a datagram. PATIENCE_S is the maximum time to wait for the receiver, or None if the
        datagram is a step, which waits as long as the allowance of steps permits."""
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
        except socket.timeout:  # another thread has set a timeout on the socket
            return False
        except OSError as error:
            # other errors mean that the receiver has exited
            self._is_dead = error.errno not in _PASSING
            return False

    def send_figures(self, text: str) -> bool:
        """Sends metrics that ebb's own code has read. A tap does not receive them, because they are
        not progress of the job."""
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
        """Sends a mark of KIND with VALUES, whose names become keys. Values of None are omitted."""
        if not self.is_there:
            return False
        lines = ["KIND=" + clean(kind)]
        for key, value in values.items():
            if value is not None:
                lines.append(f"{_key(key)}={clean(value)}")
        text = "\n".join(lines)
        if len(text) > _TEXT_MAX // 4:  # a character takes up to four bytes in UTF-8
            text = _fit(lines)
        if kind == "step":
            return self.send_step(text, must_arrive)
        return self.send(text, must_arrive)

    # ---- receiving ----

    def bind(self) -> bool:
        """Creates the socket at which this process receives requests. Its name contains the pid."""
        if not self.is_there:
            return False
        if self._replies is None:
            path = f"{self._path}.{self._pid}"
            try:
                s = datagram_socket()
                s.setblocking(False)
                try:
                    os.unlink(path)  # an earlier process with the same pid left the socket behind
                except OSError:
                    pass
                s.bind(path)
            except (OSError, ValueError):
                return False
            self._mail.register(s, select.POLLIN)
            self._replies, self._reply_path = s, path
        return True

    def listen(self, rank: Optional[int] = None, role: str = "rank") -> bool:
        """Sends a hello, so that ebb can send requests to this process. Repeated calls are
        harmless."""
        if not self.bind():
            return False
        return self.mark(
            "hello", True, reply=self._reply_path, rank=rank, role=role, **_versions()
        )

    def _take(self) -> None:
        # poll is called first, because the exception raised for an empty queue costs more than a
        # system call
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
        """Returns the received requests of these kinds. The call is cheap if there is none."""
        # in a forked child, the lock may stay locked for ever, because a thread of the parent held
        # it
        if self.is_inherited:
            return []
        if self._has_helper and not self.waiting:
            return []
        return self.take(*what)

    def take(self, *what: str) -> list[Request]:
        """Like requests(), but also reads new requests from the socket. Called by the helper
        thread."""
        with self._lock:
            self._take()
            if not self.waiting:
                return []
            found = [r for r in self.waiting if r.what in what]
            if found:
                self.waiting = [r for r in self.waiting if r.what not in what]
        return found

    def answer(self, request: Request, status: str, path: Optional[str] = None) -> bool:
        """Answers a request. STATUS is started, done or failed."""
        if request.reply is None:
            return self.mark("ack", True, id=request.id, status=status, path=path)
        lines = ["KIND=ack", f"ID={clean(request.id)}", f"STATUS={status}", f"PID={self._pid}"]
        if path is not None:
            lines.append(f"PATH={clean(path)}")
        try:
            with datagram_socket() as s:
                s.settimeout(_PATIENCE_S)
                s.sendto("\n".join(lines).encode("utf-8", "replace"), request.reply)
            return True
        except (OSError, ValueError):
            return False

    @property
    def reply_socket(self) -> Optional[socket.socket]:
        """Returns the socket at which requests arrive, for a thread to wait on, or None if this
        process does not accept requests."""
        return self._replies

    def close(self) -> None:
        sockets, path = (self._socket, self._replies), self._reply_path
        self._socket = self._replies = self._reply_path = None
        self._mail = select.poll()
        # on_close wakes the thread that polls these sockets. Otherwise the thread would go on
        # polling their descriptor numbers, which the next opened files may reuse.
        self.on_close()
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
    """Returns the wire of this process. In a forked child, this is the parent's wire, which sends
    nothing in the child."""
    global _wire
    if _wire is None:
        _wire = Wire(_process.take_hooked())
    return _wire


_figures: Optional[Wire] = None


def figures_wire() -> Wire:
    """Returns the wire for metrics that ebb's own code reads. Before the process itself has sent a
    mark, this is a separate wire, because creating the process's wire would turn all children that
    the process forks into workers.
    """
    global _figures
    if _wire is not None:
        return _wire
    if _figures is None:
        _figures = Wire()
    return _figures


def reset(make: Callable[[], Wire] = Wire) -> None:
    """Forgets the wire. Used by tests, and by a process that was forked to be a rank."""
    global _wire, _figures
    for w in (_wire, _figures):
        if w is not None:
            w.close()
    _wire = _figures = None
    _process.take_hooked()
    if make is not Wire:
        _wire = make()


def rank_of_environment() -> Optional[int]:
    """Returns the rank in the launcher's environment variables, or None if there is no launcher."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"):
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None
