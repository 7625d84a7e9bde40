"""Functions that tests/py/test_isolate.py calls in other processes, which import this module."""

import os
import signal
import sys
import threading
import time

import ebb
from ebb import _wire


def add(a, b=0):
    return a + b


def where():
    return os.getpid()


def wait_for_ever():
    ebb.mark("where", pid=os.getpid())
    while True:
        time.sleep(1)


def wait_in_spite_of_signals():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_for_ever()


def steps(count):
    for n in range(1, count + 1):
        ebb.step(n, max_steps=count)
    with ebb.phase("eval"):
        ebb.mark(loss=0.25, note="as good\nas it gets", word="12a")
    return count


def figures():
    """Sends a mark, and a step after which allocator metrics are read. Returns the texts of all
    marks sent to ebb."""
    sent, deliver = [], _wire.Wire._deliver

    def deliver_and_keep(wire, text, patience_s):
        sent.append(text)
        return deliver(wire, text, patience_s)
    _wire.Wire._deliver = deliver_and_keep
    ebb.mark("series", name="queue", value=7)
    ebb.step(1)
    return sent


def say(text):
    print(text)
    print(text.upper(), file=sys.stderr)


class Odd(Exception):
    """Cannot be unpickled: unpickling calls __init__ with one argument, but __init__ requires
    two."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


class WithLock(Exception):
    """Cannot be pickled."""

    def __init__(self):
        super().__init__("locked")
        self.lock = threading.Lock()


def inner_failure(kind):
    if kind == "odd":
        raise Odd(1, 2)
    if kind == "lock":
        raise WithLock()
    if kind == "exit":
        raise SystemExit(7)
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("no such entry") from error


def fail(kind):
    inner_failure(kind)


def unpicklable_result():
    return threading.Lock()


def die(signo):
    os.kill(os.getpid(), signo)
    time.sleep(60)


def leave(status):
    os._exit(status)


def grow(most):
    """Allocates nearly the limit of 400 MiB, and then grows slowly, so that ebb stops the process
    before the kernel kills it. Raises SystemExit if the process was not stopped."""
    kept = [b"x" * (256 << 20)]
    for _ in range(most >> 20):
        kept.append(b"x" * (1 << 20))
        time.sleep(0.04)
    raise SystemExit(len(kept))


def grow_unless_resumed(most):
    if os.environ.get("EBB_RESUME") == "1":
        return os.environ["EBB_SEGMENT"]
    for n in range(1, 4):
        ebb.step(n)  # The job sends steps, because a job without progress would not be restarted.
    grow(most)


def leave_a_child():
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def environment(*names):
    return [os.environ.get(name) for name in names]


def blob(size):
    return b"\xa5" * size


def fill_and_burst(count):
    """Sends more marks than any queue can hold, while the caller does not read marks."""
    for n in range(1, count + 1):
        ebb.step(n)
    return time.monotonic()
