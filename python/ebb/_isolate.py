"""ebb.isolate: calls a function in a new process under `ebb run`, so that all memory of
the function is released when it returns."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import pathlib
import pickle
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from concurrent.futures import CancelledError
from typing import Any, BinaryIO, Callable, Generic, Mapping, Optional, TypeVar, Union

from . import _isolated, _pickled, _size, _tap
from ._binary import find_ebb
from ._tap import Mark

T = TypeVar("T")
Progress = Callable[[Mark], Any]

_GRACE_S = 10.0  # seconds between SIGTERM and SIGKILL
# maximum seconds until the job has ended after its `ebb run` was killed
_GONE_S = 30.0
_LOOK_S = 1.0  # maximum seconds until a cancellation by another thread is noticed
_LOOK_WITHOUT_PIDFD_S = 0.05
_CHANNEL_BYTES = 1 << 20
_OF_A_RUN = ("EBB_SOCKET", "EBB_RUN_DIR", "EBB_SEGMENT", "EBB_RESUME", "EBB_LIMIT_BYTES")


class IsolatedError(RuntimeError):
    """The call has no result, because its process died or because its exception cannot be
    pickled."""


class MemoryLimitExceeded(IsolatedError, MemoryError):
    """The guard or the kernel killed the process because it exceeded a memory limit."""


class RemoteTraceback(Exception):
    """The __cause__ of an exception raised in the other process. Its text is that process's
    traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _is_off() -> bool:
    return os.environ.get("EBB_ISOLATE") == "0"


def _name_of(function: Callable[..., Any]) -> str:
    function = getattr(function, "func", function)  # unwraps a functools.partial
    return str(getattr(function, "__qualname__", type(function).__qualname__))


# ---- request ----


def _main_module() -> "dict[str, str]":
    """Describes how the other process can import the definitions in __main__. The result is empty
    if they cannot be imported, for example in a REPL."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    if path is None or not os.path.exists(path):
        return {}
    return {"init_main_from_path": os.path.abspath(path)}


def _write_call(file: BinaryIO, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    buffers: "list[pickle.PickleBuffer]" = []
    name = _name_of(function)
    try:
        payload = pickle.dumps((function, args, kwargs), 5, buffer_callback=buffers.append)
    except Exception as error:
        raise TypeError(
            f"{name} or its arguments cannot be sent to another process: {error}; "
            "functions and classes must be defined at the top level of a module"
        ) from error
    call: "dict[str, Any]" = {"path": sys.path, "argv": sys.argv}
    # the other process imports the program only if the payload refers to its definitions
    if b"__main__" in payload:
        import multiprocessing.spawn  # noqa: F401  (creates __mp_main__ in this process too)

        main = _main_module()
        if not main and getattr(function, "__module__", None) == "__main__":
            raise TypeError(
                f"{name} cannot be sent to another process: "
                "the program has no source file that the other process could import"
            )
        call.update(main)
    call["payload"] = pickle.PickleBuffer(payload)
    call["buffers"] = buffers
    _pickled.dump(file, call)


def _command(fds: "list[int]") -> "list[str]":
    # Uses -c, as multiprocessing does: with -m, Python would have to find ebb on its import path
    # before any code could extend that path.
    home = str(pathlib.Path(__file__).resolve().parent.parent)
    code = (
        f"import sys; sys.path.append({home!r}); "
        f"from ebb._isolated import main; main({', '.join(map(str, fds))})"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code]


def _environment(changes: "Optional[Mapping[str, Optional[str]]]") -> "dict[str, str]":
    env = {key: value for key, value in os.environ.items() if key not in _OF_A_RUN}
    for key, text in (changes or {}).items():
        if text is None:
            env.pop(key, None)
        else:
            env[key] = text
    return env


# ---- the call ----

_live: "weakref.WeakSet[IsolatedCall[Any]]" = weakref.WeakSet()


class IsolatedCall(Generic[T]):
    """A running or finished call, created by `isolate_start`. Every method may be called from
    any thread."""

    def __init__(
        self,
        function: Callable[..., T],
        args: "tuple[Any, ...]",
        kwargs: "dict[str, Any]",
        limit: Union[int, str, None],
        on_progress: Optional[Progress],
        timeout: Optional[float],
        name: Optional[str],
        env: "Optional[Mapping[str, Optional[str]]]",
        run_dir: "Optional[Union[str, os.PathLike[str]]]",
        restart: bool,
    ) -> None:
        self.name = name or _name_of(function)
        self.facts: "Optional[dict[str, Any]]" = None
        """run.json of the call (peak memory, verdict, why the call ended); None until the call has
        ended"""
        self._on_progress = on_progress
        self._until = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._run_dir = None if run_dir is None else os.path.abspath(run_dir)
        self._folder: Optional[str] = None
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._channel: Optional[socket.socket] = None
        self._outcome_file: Optional[BinaryIO] = None
        self._kill_at: Optional[float] = None
        self._has_begun = False
        self._is_cancelled = False
        self._is_late = False
        self._value: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._callbacks: "list[Callable[[], None]]" = []
        self._in_process: Optional[Callable[[], T]] = None
        if _isolated.is_importing_main:
            raise RuntimeError(
                "ebb.isolate was called while the isolated process was importing the program; "
                'move the call below `if __name__ == "__main__":`'
            )
        options = [] if limit is None else ["--limit", _size.limit(limit)]
        if restart:
            options.append("--restart")
        if _is_off():
            self._in_process = lambda: function(*args, **kwargs)
        else:
            self._start(function, args, kwargs, options, env)

    # ---- start ----

    def _start(
        self,
        function: Callable[..., T],
        args: Any,
        kwargs: Any,
        options: "list[str]",
        env: "Optional[Mapping[str, Optional[str]]]",
    ) -> None:
        program = find_ebb()
        with tempfile.TemporaryFile(prefix="ebb-call-") as call:
            _write_call(call, function, args, kwargs)
            theirs = None
            try:
                self._outcome_file = tempfile.TemporaryFile(prefix="ebb-result-")
                self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHANNEL_BYTES)
                self._channel.setblocking(False)
                fds = [call.fileno(), self._outcome_file.fileno(), theirs.fileno()]
                if self._run_dir is None:
                    self._folder = tempfile.mkdtemp(prefix="ebb-isolate-")
                    run_dir = os.path.join(self._folder, "run")
                else:
                    run_dir = self._run_dir
                self._process = subprocess.Popen(
                    [program, "run", "--quiet", "--no-terminal", "--run-dir", run_dir]
                    + ["--name", self.name, *options, "--", *_command(fds)],
                    pass_fds=fds,
                    stdin=subprocess.DEVNULL,
                    env=_environment(env),
                    # Ctrl-C reaches only the caller, which may be a server that shuts down
                    # gracefully. The caller then ends the process.
                    start_new_session=True,
                )
            except BaseException:
                self._close()
                raise
            finally:
                if theirs is not None:
                    theirs.close()
        _live.add(self)

    def _close(self) -> None:
        for thing in (self._channel, self._outcome_file):
            if thing is not None:
                thing.close()
        self._channel = self._outcome_file = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # ---- methods used while the call runs ----

    def _take_marks(self) -> bool:
        """Passes received marks to on_progress. Returns False once all writers have closed the
        channel."""
        assert self._channel is not None
        while True:
            try:
                data = self._channel.recv(16384)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            if self._on_progress is not None:
                self._on_progress(_tap.as_dict(data.decode("utf-8", "replace")))

    def _look_at_clock(self) -> None:
        assert self._process is not None
        now = time.monotonic()
        if self._until is not None and now >= self._until and self._kill_at is None:
            self._is_late = True
            self._end_softly()
        if self._kill_at is not None and now >= self._kill_at:
            # `ebb run` is killed; its supervisor then ends the job, with SIGKILL if necessary
            self._process.kill()

    def _patience_ms(self, look_s: float) -> float:
        until = self._until if self._kill_at is None else self._kill_at
        left = look_s if until is None else min(look_s, max(0.0, until - time.monotonic()))
        return left * 1000 + 1

    def _pump(self) -> None:
        assert self._process is not None and self._channel is not None
        look_s = _LOOK_S
        pidfd = -1
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        try:
            pidfd = os.pidfd_open(self._process.pid)
            poll.register(pidfd, select.POLLIN)
        except OSError:  # the kernel does not support pidfds
            look_s = _LOOK_WITHOUT_PIDFD_S
        try:
            while self._process.poll() is None:
                self._look_at_clock()
                poll.poll(self._patience_ms(look_s))
                if not self._take_marks():
                    poll = select.poll()
                    if pidfd >= 0:
                        poll.register(pidfd, select.POLLIN)
        finally:
            if pidfd >= 0:
                os.close(pidfd)
        self._take_marks()

    def _wait_until_gone(self) -> None:
        """Waits until all writers have closed the channel. If `ebb run` was killed, the job keeps
        the channel open until the supervisor of `ebb run` has ended the job."""
        assert self._process is not None and self._channel is not None
        if self._process.returncode >= 0:
            return
        until = time.monotonic() + _GONE_S
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while time.monotonic() < until and self._take_marks():
            poll.poll(max(0.0, until - time.monotonic()) * 1000)

    def _run(self) -> None:
        """Runs the call to its end in the current thread."""
        self._has_begun = True
        if self._in_process is not None:
            self._run_in_process()
            return
        failure: Optional[BaseException] = None
        try:
            self._pump()
            self._wait_until_gone()
        # on_progress raised an exception, or the user pressed Ctrl-C
        except BaseException as error:
            failure = error
            self._abandon()
        try:
            self._conclude(failure)
        finally:
            self._close()
            self._end()

    def _abandon(self) -> None:
        self._on_progress = None
        try:
            self._end_softly()
            self._pump()
            self._wait_until_gone()
        except BaseException:  # a second Ctrl-C kills the process immediately
            assert self._process is not None
            self._process.kill()
            self._process.wait()
            self._wait_until_gone()

    def _run_in_process(self) -> None:
        assert self._in_process is not None
        progress = self._on_progress
        try:
            if progress is None:
                self._value = self._in_process()
            else:
                give = progress
                with _tap.tap_thread(lambda text, _: give(_tap.as_dict(text))):
                    self._value = self._in_process()
        except BaseException as error:
            self._error = error
        finally:
            self._in_process = None
            self._end()

    # ---- end ----

    def _end(self) -> None:
        _live.discard(self)
        with self._lock:
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _read_facts(self) -> None:
        folder = self._run_dir or os.path.join(self._folder or "", "run")
        try:
            with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
                self.facts = json.load(file)
        except (OSError, ValueError):
            pass

    def _conclude(self, failure: Optional[BaseException]) -> None:
        assert self._outcome_file is not None
        self._read_facts()
        if failure is not None:
            self._error = failure
        elif _pickled.is_whole(self._outcome_file):
            self._take_outcome()
        elif self._is_late:
            self._error = TimeoutError(f"{self.name} did not return within {self._timeout} s")
        elif self._is_cancelled:
            self._error = CancelledError(f"{self.name} was cancelled")
        else:
            self._error = self._death()

    def _take_outcome(self) -> None:
        assert self._outcome_file is not None
        try:
            outcome: _isolated.Outcome = _pickled.load(self._outcome_file)
        except Exception as error:
            self._error = IsolatedError(f"the result of {self.name} cannot be read: {error}")
            self._error.__cause__ = error
            return
        if outcome.error_repr is None:
            self._value = outcome.value
            return
        found: Optional[BaseException] = None
        try:
            found = None if outcome.error is None else pickle.loads(outcome.error)
        except Exception:
            pass
        if not isinstance(found, BaseException):
            found = IsolatedError(f"{self.name} raised {outcome.error_repr}")
        found.__cause__ = RemoteTraceback(outcome.trace)
        self._error = found

    def _death(self) -> IsolatedError:
        assert self._process is not None
        status = self._process.returncode
        end = (self.facts or {}).get("end")
        if not isinstance(end, dict):
            if status < 0:
                reason = f"`ebb run` was killed by signal {-status}"
            else:
                reason = (
                    f"`ebb run` could not start the process (status {status}; its error message is "
                    "on standard error)"
                )
            return IsolatedError(f"{self.name} has no result: {reason}")
        cause = end.get("cause") or end.get("error") or end.get("by") or end.get("kind")
        kind = str(end.get("cause_kind", ""))
        is_memory = kind == "guard" or kind.startswith("kernel oom")
        made = MemoryLimitExceeded if is_memory else IsolatedError
        return made(f"{self.name} ended without a result: {cause}")

    # ---- public methods ----

    def _end_softly(self) -> None:
        assert self._process is not None
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _GRACE_S
            self._process.terminate()

    def cancel(self) -> bool:
        """Requests the end of the call: sends SIGTERM, and SIGKILL ten seconds later. Returns at
        once. Returns False if the call has already ended, or cannot be stopped because it runs in
        this process."""
        with self._lock:
            if self._ended.is_set() or self._process is None:
                return False
            self._is_cancelled = True
            self._end_softly()
        return True

    def done(self) -> bool:
        """Returns True if the call has ended. Its memory has then been released."""
        return self._ended.is_set()

    def result(self, timeout: Optional[float] = None) -> T:
        """Waits for the end of the call. Returns the function's result or raises its exception.
        TIMEOUT limits only the wait: the call continues after a TimeoutError."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"{self.name} is still running")
        try:
            if self._error is not None:
                raise self._error
            return self._value  # type: ignore[return-value]
        finally:
            # the traceback of a raised exception refers to this frame; without SELF, the frame no
            # longer refers back to the exception
            self = None  # type: ignore[assignment]

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Calls CALLBACK() in the call's own thread when the call ends, or immediately if it has
        already ended."""
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback()

    async def wait_async(self) -> T:
        """Like result(), but for asyncio. Cancelling the wait does not cancel the call."""
        loop = asyncio.get_running_loop()
        woken: "asyncio.Future[None]" = loop.create_future()

        def set_woken() -> None:
            if not woken.done():
                woken.set_result(None)

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(set_woken)
            except RuntimeError:  # the event loop was closed in the meantime
                pass

        self.add_done_callback(wake)
        await woken
        return self.result()


@atexit.register
def _cancel_all() -> None:
    # Cancels all calls at exit. Otherwise their threads would end with the interpreter, and their
    # temporary folders would remain.
    calls = list(_live)
    for call in calls:
        call.cancel()
    for call in calls:
        if call._has_begun:
            call._ended.wait(_GRACE_S + _GONE_S)
        else:  # Ctrl-C was pressed before the call began to run
            call._run()


def _forget_all() -> None:
    # Forgets all calls in a forked child. The child must not cancel its parent's calls, nor keep
    # them alive.
    for call in list(_live):
        if call._channel is not None:
            call._channel.close()
    _live.clear()


os.register_at_fork(after_in_child=_forget_all)


# ---- public functions ----


def isolate(
    fn: Callable[..., T],
    *args: Any,
    limit: Union[int, str, None] = None,
    on_progress: Optional[Progress] = None,
    timeout: Optional[float] = None,
    name: Optional[str] = None,
    env: "Optional[Mapping[str, Optional[str]]]" = None,
    run_dir: "Optional[Union[str, os.PathLike[str]]]" = None,
    restart: bool = False,
    **kwargs: Any,
) -> T:
    """Calls FN(*args, **kwargs) in a new process under `ebb run`, and returns its result or raises
    its exception. Before isolate returns, the process and all its children have exited.

    limit        memory limit, such as "24G" or "80%"; if exceeded, MemoryLimitExceeded is raised
    on_progress  called in this thread with each mark that FN sends; if it raises, the call ends
    timeout      seconds after which the process is killed and TimeoutError is raised
    name         name of the run (default: the function's name)
    env          changes to the environment of the process; None removes a variable
    run_dir      folder in which to keep the recording; it must not exist yet
    restart      call FN again, with EBB_RESUME=1, after the guard has stopped it

    With EBB_ISOLATE=0 in the environment, FN is called in this process, without limit and timeout.
    """
    call = IsolatedCall(
        fn, args, kwargs, limit, on_progress, timeout, name, env, run_dir, restart
    )
    call._run()
    return call.result()


def isolate_start(
    fn: Callable[..., T],
    *args: Any,
    limit: Union[int, str, None] = None,
    on_progress: Optional[Progress] = None,
    timeout: Optional[float] = None,
    name: Optional[str] = None,
    env: "Optional[Mapping[str, Optional[str]]]" = None,
    run_dir: "Optional[Union[str, os.PathLike[str]]]" = None,
    restart: bool = False,
    **kwargs: Any,
) -> "IsolatedCall[T]":
    """Like isolate(), but returns at once. on_progress is called in the call's own thread."""
    call = IsolatedCall(
        fn, args, kwargs, limit, on_progress, timeout, name, env, run_dir, restart
    )
    threading.Thread(target=call._run, name=f"ebb-{call.name}", daemon=True).start()
    return call


async def isolate_async(
    fn: Callable[..., T],
    *args: Any,
    on_progress: Optional[Progress] = None,
    **kwargs: Any,
) -> T:
    """Like isolate(), for asyncio. on_progress is called in the event loop's thread. Cancelling the
    task cancels the call; the task ends when the process has exited."""
    loop = asyncio.get_running_loop()
    hand_on: Optional[Progress] = None
    if on_progress is not None:
        give = on_progress
        hand_on = lambda mark: loop.call_soon_threadsafe(give, mark)  # noqa: E731
    call = isolate_start(fn, *args, on_progress=hand_on, **kwargs)
    try:
        return await call.wait_async()
    except asyncio.CancelledError:
        call.cancel()
        try:
            await call.wait_async()
        except Exception:
            pass
        raise
