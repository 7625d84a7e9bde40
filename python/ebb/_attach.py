"""Starts and stops ebb's profiler and hooks in a process that is already running.

`ebb attach` calls start and stop in the main thread, between two bytecode instructions. Both return
at once. A separate thread does the work, reports the result in one datagram to ebb's socket, and
never raises into the program:

    KIND=attached  PID=…  HEAP=1|0  REASON=what is not profiled
    KIND=detached  PID=…  HEAP=0    REASON=what could not be restored
    KIND=refused   PID=…  HEAP=0    REASON=why ebb cannot attach

After stop, the program has none of ebb's hooks, threads or descriptors. The library of the profiler
and the modules of this package stay loaded.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import ModuleType
from typing import Any, Callable, Optional

_FOLLOW_S = 1.0  # seconds between memory readings, and between scans for new libraries
_JOIN_S = 2.0  # maximum seconds to wait until a thread ends
_FORK_PATIENCE_S = 0.1

_YIELD_S = 0.0005
# These modules are imported one by one, with pauses in between: importing a single one can block
# the program for up to 4 ms, and importing all of them at once would block it for much longer.
_PARTS = ("_process", "_patches", "_wire", "_truth", "_referrers", "_containers", "_control",
          "_steps", "_watch", "_hooks")

_lock = threading.RLock()  # held by the thread that is attaching or detaching
_now: Optional["_Attached"] = None
_has_fork_handlers = False
Result = tuple[str, bool, str]  # a report: its KIND, whether the profiler runs, and its REASON
# calls of start and stop that the thread has not processed yet, each with the socket to which its
# result is reported
_queue: list[tuple[str, Callable[[], Result]]] = []
_queue_lock = threading.Lock()
_is_working = False  # True while a thread processes the queue
_socket: Optional[str] = None  # socket passed to the last call of start


def _seccomp(pid: str) -> tuple[int, int]:
    """Returns the seccomp mode and the number of seccomp filters of a process."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            lines = dict(line.split(":\t", 1) for line in f if line.startswith("Seccomp"))
    except OSError:
        return 0, 0
    mode = int(lines.get("Seccomp", "0"))
    return mode, int(lines.get("Seccomp_filters", "1" if mode else "0"))


def _is_answering(path: str) -> bool:
    """Returns True if an ebb process listens at the socket PATH."""
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(path)
        return True
    except (OSError, ValueError):
        return False


def _report(path: str, kind: str, has_heap: bool, reason: str = "") -> None:
    import socket

    text = f"KIND={kind}\nPID={os.getpid()}\nHEAP={int(has_heap)}"
    if reason:
        text += "\nREASON=" + "".join(c if c.isprintable() else " " for c in reason)[:1024]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.settimeout(1.0)
            s.sendto(text.encode("utf-8", "replace"), path)
    except (OSError, ValueError):
        pass


# ---- the profiler ----


class _Heap:
    """The profiler's library, libebb-heap.so, loaded into this process."""

    def __init__(self, library: str) -> None:
        import ctypes

        self._free = ctypes.CDLL(library)  # calls through this object release the GIL
        self._held = ctypes.PyDLL(library)  # calls through this object hold the GIL
        self._free.ebb_heap_attach.restype = ctypes.c_char_p
        self._free.ebb_heap_attach.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]

    def attach(self, socket: str, interval: int, filters: int) -> str:
        """Starts the profiler. Returns a description of what cannot be profiled, or an empty
        string. Raises OSError if nothing can be profiled."""
        refusal: Optional[bytes]
        refusal = self._free.ebb_heap_attach(os.fsencode(socket), interval, filters)
        if refusal is not None:
            raise OSError(refusal.decode())
        if self._held.ebb_heap_attach_python():
            return ""
        return "small Python objects are not profiled: another tool has replaced their allocator"

    def refresh(self) -> None:
        self._free.ebb_heap_refresh()

    def detach(self) -> str:
        has_python = self._held.ebb_heap_detach_python()
        has_all = self._free.ebb_heap_detach()
        if not has_python:
            return "the hook on Python's allocator stays, because another tool has wrapped the hook"
        return "" if has_all else "the profiler is still in use by a thread of the program"


def _library() -> str:
    """Returns the path of the profiler's library, next to this package or to the ebb program."""
    from . import _binary

    folder = os.path.dirname(os.path.abspath(__file__))
    program = os.path.dirname(os.path.realpath(_binary.find_ebb()))
    places = (
        os.path.join(folder, "lib"),
        program,
        os.path.join(os.path.dirname(program), "lib", "ebb"),
    )
    for place in places:
        path = os.path.join(place, "libebb-heap.so")
        if os.path.exists(path):
            return path
    raise OSError("libebb-heap.so is not installed")


# ---- the hooks ----


class _Finder:
    """An import finder at the first position of sys.meta_path. While ebb is attached, it passes
    newly imported modules to the hooks."""

    def __init__(self, loaded: Callable[[str, ModuleType], Any]) -> None:
        # imported here, because an import inside find_spec would call find_spec again
        from . import _hooks, _watch

        self._names, self._loaded, self._find = _hooks.HOOKS, loaded, _watch.find_watched

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._names:
            return None
        return self._find(self, name, path, target, self._loaded)


def _is_importing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _let_others_run() -> None:
    """Releases the GIL, which this thread would otherwise hold for up to 5 ms."""
    time.sleep(_YIELD_S)


def _import_parts() -> None:
    from importlib import import_module

    for name in _PARTS:
        if f"{__package__}.{name}" not in sys.modules:
            import_module(f"{__package__}.{name}")
            _let_others_run()


class _Attached:
    """The changes that start() makes to this process and stop() undoes."""

    def __init__(self, socket: str, run_dir: str) -> None:
        self.socket, self.run_dir = socket, run_dir
        self.pid = os.getpid()
        self.reasons: list[str] = []
        self.heap: Optional[_Heap] = None
        self._lock = threading.Lock()  # protects _follower
        self._finder = _Finder(self.hook_module)
        self._patches = 0
        self._is_over = False  # True once detaching has begun; no thread may be started after that
        # The thread that reads memory regularly, and the lock that ends it: the thread exits when
        # the lock is released.
        self._follower: Optional[tuple[threading.Thread, threading.Lock]] = None

    # ---- attaching ----

    def attach(self, library: Optional[str], interval: int, filters: int) -> None:
        from . import _patches, _process, _wire

        self._patches = _patches.count()
        _process.attached = {"EBB_SOCKET": self.socket, "EBB_RUN_DIR": self.run_dir}
        _wire.reset()
        _wire.wire()  # children forked from now on report to ebb as workers
        try:
            heap = _Heap(library or _library())
            self._miss(heap.attach(self.socket, interval, filters))
            self.heap = heap
        except Exception as error:
            self._miss(f"no profiler: {error}")
        sys.meta_path.insert(0, self._finder)
        self.hook_modules()
        self.start_thread()

    def _miss(self, reason: str) -> None:
        if reason:
            self.reasons.append(reason)

    def hook_module(self, name: str, module: ModuleType) -> bool:
        """Hooks a module. Returns False if it is hooked already. If ebb is detached while the
        module is being imported, the module is not hooked. This takes no lock, because imports in
        several threads would wait for each other."""
        from . import _hooks, _patches

        is_new = not self._is_over and _hooks.loaded(name, module)
        if is_new and self._is_over:
            _patches.undo(self._patches)
            _hooks.reset()
        return is_new

    def hook_modules(self) -> None:
        """Hooks the modules that are already imported."""
        from . import _hooks

        for name in _hooks.HOOKS:
            module = sys.modules.get(name)
            if module is not None and not _is_importing(module):
                if self.hook_module(name, module):
                    _let_others_run()

    # ---- the thread ----

    def start_thread(self) -> None:
        with self._lock:
            if self._is_over or self._follower is not None:
                return
            bell = threading.Lock()
            bell.acquire()
            thread = threading.Thread(
                target=self._follow, args=(bell,), name="ebb-attached", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                self._miss(f"no thread: {error}")
                return
            self._follower = (thread, bell)

    def end_thread(self, patience_s: float) -> None:
        # if another thread holds the lock, that thread is already starting or ending the follower
        if not self._lock.acquire(timeout=patience_s):
            return
        try:
            follower, self._follower = self._follower, None
        finally:
            self._lock.release()
        if follower is None or follower[0] is threading.current_thread():
            return
        thread, bell = follower
        bell.release()
        until = time.monotonic() + patience_s
        thread.join(patience_s)
        # Python may report the end of a thread slightly before the kernel removes it
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < until:
            time.sleep(0.0001)

    def _follow(self, bell: Any) -> None:
        try:
            from . import _containers, _truth

            block_signals()
            while not bell.acquire(True, _FOLLOW_S):
                if self.heap is not None:
                    self.heap.refresh()
                self.hook_modules()
                _truth.without_steps()
                _containers.without_steps()
        except Exception:  # the interpreter is shutting down
            pass

    # ---- detaching ----

    def detach(self) -> str:
        """Undoes all changes. Returns a description of what could not be undone, or an empty
        string."""
        from . import _containers, _control, _hooks, _patches, _process, _truth, _wire

        def leave() -> None:
            _process.attached = {}

        left = []
        self._is_over = True
        for undo in (
            lambda: self.end_thread(_JOIN_S),
            lambda: sys.meta_path.remove(self._finder),
            lambda: left.extend(_patches.undo(self._patches)),
            lambda: _wire.wire().send_held(is_exiting=True),
            _control.stop,
            leave,
            _wire.reset,
            _hooks.reset,
            _truth.reset,
            _containers.reset,
        ):
            try:
                undo()
            except Exception:  # an error in one call must not prevent the others
                continue
        reasons = [f"another tool has also changed {', '.join(left)}"] if left else []
        if self.heap is not None:
            reasons.append(self.heap.detach())
        return "; ".join(filter(None, reasons))


def block_signals() -> None:
    """Blocks all signals in the calling thread, which belongs to ebb, so that the main thread
    receives them."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


# ---- forks ----


def _before_fork() -> None:
    """Ends the thread before a fork, because Python 3.12 and later warn about threads during a
    fork."""
    if _now is not None and _now.pid == os.getpid():
        _now.end_thread(_FORK_PATIENCE_S)


def _after_fork() -> None:
    if _now is not None and _now.pid == os.getpid():
        _now.start_thread()


def _in_child() -> None:
    global _lock, _queue_lock, _now, _is_working
    # the child is not attached itself: it is a worker of the attached parent
    _lock, _queue_lock, _now, _is_working = threading.RLock(), threading.Lock(), None, False
    _queue.clear()


def _handle_forks() -> None:
    global _has_fork_handlers
    if not _has_fork_handlers:
        _has_fork_handlers = True
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child
        )


# ---- interface ----


def refusal(socket: str) -> str:
    """Returns the reason why ebb cannot attach to this process, or an empty string."""
    if sys.version_info < (3, 9):
        return "Python is older than 3.9"
    mode, filters = _seccomp("self")
    if mode == 1 or filters > _seccomp("1")[1]:
        return ("the process is in a seccomp sandbox, which might kill it if ebb makes a forbidden "
                "system call")
    for other in (_now.socket if _now is not None else None, os.environ.get("EBB_SOCKET")):
        if other and other != socket and _is_answering(other):
            return f"another ebb already watches this process, at {other}"
    return ""


def attach(
    socket: str, run_dir: str, library: Optional[str] = None, heap_interval: Optional[int] = None
) -> Result:
    """Does the work of start() in the thread."""
    global _now
    with _lock:
        why = refusal(socket)
        if why:
            return "refused", False, why
        if _now is not None and _now.socket != socket:
            detach()  # the ebb that was attached before has exited
        if _now is None:
            _import_parts()
            one = _Attached(socket, run_dir)
            _handle_forks()
            try:
                one.attach(library, int(heap_interval or 0), _seccomp("self")[1])
            except Exception:
                one.detach()
                raise
            _now = one
        return "attached", _now.heap is not None, "; ".join(_now.reasons)


def detach() -> Result:
    """Does the work of stop() in the thread."""
    global _now
    with _lock:
        one, _now = _now, None
        return "detached", False, one.detach() if one is not None else ""


def _work() -> None:
    """Processes the queue in a separate thread, which ends when the queue is empty."""
    global _is_working
    _let_others_run()  # lets the thread that called start or stop continue first
    block_signals()
    while True:
        with _queue_lock:
            if not _queue:
                _is_working = False
                return
            path, work = _queue.pop(0)
        try:
            kind, has_heap, reason = work()
        except Exception as error:
            kind, has_heap, reason = "refused", False, f"{type(error).__name__}: {error}"
        _report(path, kind, has_heap, reason)


def _enqueue(path: str, work: Callable[[], Result]) -> None:
    global _is_working
    with _queue_lock:
        _queue.append((path, work))
        if _is_working:
            return
        _is_working = True
    try:
        threading.Thread(target=_work, name="ebb-attach", daemon=True).start()
    except Exception as error:
        _is_working = False
        _queue.clear()
        _report(path, "refused", False, f"no thread: {error}")


def start(
    socket: str, run_dir: str, library: Optional[str] = None, heap_interval: Optional[int] = None
) -> None:
    """Attaches the ebb process that listens at SOCKET. LIBRARY is the path of libebb-heap.so,
    HEAP_INTERVAL the mean number of allocated bytes between two samples. A second call with the
    same socket only repeats the report."""
    global _socket
    _socket = socket
    _enqueue(socket, lambda: attach(socket, run_dir, library, heap_interval))


def is_attached() -> bool:
    """Returns True while ebb is attached, attaching or detaching."""
    return _now is not None or _is_working


def stop() -> None:
    """Detaches ebb. Has no effect before the first call of start."""
    if _socket is not None:
        _enqueue(_socket, detach)
