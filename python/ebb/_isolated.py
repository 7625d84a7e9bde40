"""Runs in the process that ebb.isolate starts, and calls the function there."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Optional

from . import _pickled, _tap

# Seconds for which a mark with must_arrive waits if the caller is not reading. Then the mark is
# dropped; other marks are dropped at once.
_PATIENCE_S = 0.2
_GRACE_S = 5.0

# True while the program is imported for its definitions; calls of ebb.isolate are then refused
is_importing_main = False


class Outcome:
    """The result of the call. An exception is pickled separately, because pickling it may fail."""

    def __init__(
        self,
        value: Any = None,
        error: Optional[bytes] = None,
        error_repr: Optional[str] = None,
        trace: str = "",
    ) -> None:
        self.value = value
        self.error = error
        self.error_repr = error_repr  # repr of the exception that the function raised, or None
        self.trace = trace


def _pickled_error(error: BaseException) -> Optional[bytes]:
    """Returns the pickled exception, or None if it cannot be pickled."""
    # A SystemExit or KeyboardInterrupt in this process must not be raised in the caller, which may
    # be a server.
    if not isinstance(error, Exception):
        return None
    try:
        pickled = pickle.dumps(error, 5)
        return pickled if type(pickle.loads(pickled)) is type(error) else None
    except Exception:
        return None


def _failed(error: BaseException, skip: int) -> Outcome:
    trace = error.__traceback__
    for _ in range(skip):  # skips the frames of ebb itself
        trace = trace.tb_next if trace is not None else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        description = repr(error)
    except Exception:
        description = f"<{type(error).__qualname__}>"
    return Outcome(error=_pickled_error(error), error_repr=description, trace=text)


def _import_main(call: "dict[str, Any]") -> None:
    global is_importing_main
    keys = ("init_main_from_name", "init_main_from_path")
    main: "dict[str, Any]" = {key: call[key] for key in keys if key in call}
    if not main:
        return
    from multiprocessing import spawn

    is_importing_main = True
    try:
        spawn.prepare(main)
    finally:
        is_importing_main = False


def _call(call: "dict[str, Any]") -> Outcome:
    try:
        # the caller's import path first, then the entries added by this process's own environment
        own = [place for place in sys.path if place and place not in call["path"]]
        sys.path[:] = call["path"] + own
        sys.argv[:] = call["argv"]
        _import_main(call)
        function, args, kwargs = pickle.loads(call.pop("payload"), buffers=call.pop("buffers"))
    except BaseException as error:
        return _failed(error, 1)
    try:
        return Outcome(value=function(*args, **kwargs))
    except BaseException as error:
        return _failed(error, 1)


def _answer(file: BinaryIO, outcome: Outcome) -> None:
    try:
        _pickled.dump(file, outcome)
    except Exception as error:
        reason = TypeError(f"the result cannot be sent back: {error}")
        reason.__cause__ = error
        _pickled.dump(file, _failed(reason, 0))


def _forward(channel: socket.socket) -> None:
    """Sends each mark not only to ebb but also to the caller. The function never waits long for a
    slow caller, who then misses some marks.
    """

    def sink(text: str, must_arrive: bool) -> None:
        data = text.encode("utf-8", "replace")
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                channel.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                if not must_arrive or time.monotonic() > until:
                    return
                time.sleep(0.005)
            except OSError:
                return

    _tap.tap_process(sink)


def _die_with_caller(channel: socket.socket) -> None:
    """Ends this process once the caller has closed its end of the channel, because the result is no
    longer needed."""

    def wait() -> None:
        try:
            while channel.recv(1):
                pass
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="ebb-isolated", daemon=True).start()


def main(call_fd: int, outcome_fd: int, channel_fd: int) -> None:
    for fd in (call_fd, outcome_fd, channel_fd):
        # keeps child processes of the function from inheriting the descriptor
        os.set_inheritable(fd, False)
    channel = socket.socket(fileno=channel_fd)
    _die_with_caller(channel)
    _forward(channel)
    with open(call_fd, "rb") as file:
        call = _pickled.load(file)
    with open(outcome_fd, "r+b") as file:
        file.truncate(0)  # deletes the result of an earlier attempt of this call
        outcome = _call(call)
        _answer(file, outcome)
    sys.exit(0 if outcome.error_repr is None else 1)
