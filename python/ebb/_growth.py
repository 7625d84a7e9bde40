"""Finds out whether a repeated block of code leaks: measures the live memory after each iteration,
and judges the measurements."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tracemalloc
from array import array
from typing import Callable, NamedTuple, Optional, Sequence

MIN_ITERATIONS = 24  # minimum number of iterations for a verdict
# Growth of up to this many bytes per iteration is ignored, for example a few numbers appended to a
# log.
_NEGLIGIBLE_BYTES = 256
# for the verdict "sound": maximum growth per iteration, including noise
_BOUND_BYTES = 1024
# For the verdict "leak": minimum growth in the second half, as a fraction of the growth in the
# first half. A growing list, which Python enlarges by an eighth now and then, reaches this
# fraction; a cache that is three quarters full does not.
_CONTINUES = 0.65


class Verdict(NamedTuple):
    word: str  # "leak", "sound" or "undecided"
    bytes_per_iteration: float


def _edges(first: int, n: int, count: int, geometric: bool) -> list[int]:
    if geometric:
        ratio = (n / first) ** (1 / count)
        found = [round(first * ratio**i) for i in range(count + 1)]
    else:
        found = [first + (n - first) * i // count for i in range(count + 1)]
    for i in range(1, count + 1):
        found[i] = max(found[i], found[i - 1] + 1)
    return found if found[-1] == n else found[:-1] + [n]


def _minima(values: Sequence[int], edges: list[int]) -> list[int]:
    return [min(values[a:b]) for a, b in zip(edges, edges[1:])]


def _rises(minima: list[int]) -> bool:
    return all(a < b for a, b in zip(minima, minima[1:]))


def judge(values: Sequence[int], n: int, final: bool = True) -> Verdict:
    """Judges the live bytes measured after each of N iterations.

    The minimum over a block of iterations is memory that no iteration of the block released. A leak
    raises this minimum from block to block. For values in random order, the minima of 10 equal
    blocks rise with a probability of 1/10!, and those of 8 blocks of increasing length with an even
    lower probability. Blocks of increasing length detect a growing list, which Python enlarges by
    an eighth each time; equal blocks detect a leak in noise. While a cache fills, the minima rise
    too, but more and more slowly. If FINAL is False, more values will follow, and VALUES are judged
    "sound" only if they are flat."""
    if n < MIN_ITERATIONS:
        return Verdict("undecided", 0.0)
    rises = any(
        _rises(_minima(values, _edges(first, n, count, geometric)))
        for first, count, geometric in ((max(2, n // 16), 8, True), (n // 4, 10, False))
    )
    fifths = _minima(values, _edges(n // 6, n, 5, False))
    distance = (n - n // 6) / 5
    rate = (fifths[-1] - fifths[0]) / (4 * distance)
    early = (fifths[2] - fifths[0]) / (2 * distance)
    late = (fifths[-1] - fifths[2]) / (2 * distance)
    if rises and rate >= _NEGLIGIBLE_BYTES:
        return Verdict("leak" if late >= _CONTINUES * early else "undecided", rate)
    flat = fifths[1:]
    bound = (max(flat) - min(flat)) / (3 * distance)
    if bound < (_BOUND_BYTES if final else _NEGLIGIBLE_BYTES):
        return Verdict("sound", rate)
    return Verdict("undecided", rate)


class _Mallinfo(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_int) for i in range(10)]


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]


def _malloc_reader() -> Optional[Callable[[], int]]:
    """Returns a function that reads how many bytes allocated by malloc are live. Returns None if
    malloc is not glibc's, because glibc's counters would then not change."""
    libc = ctypes.CDLL(None)
    info = getattr(libc, "mallinfo2", None)
    wide = info is not None
    info = info or getattr(libc, "mallinfo", None)
    if info is None:
        return None
    info.restype = _Mallinfo2 if wide else _Mallinfo

    def read() -> int:
        now = info()
        # hblkhd counts blocks mapped with mmap, uordblks counts blocks in arenas
        return int(now.field4 + now.field7)

    def read_narrow() -> int:  # before glibc 2.33, the counters have 32 bits and overflow
        return read() & 0xFFFFFFFF

    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    reader = read if wide else read_narrow
    before = reader()
    block = libc.malloc(1 << 20)
    counted = reader() - before
    libc.free(block)
    return reader if counted >= 1 << 20 else None


def _gpu_bytes() -> int:
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return sum(torch.cuda.memory_allocated(d) for d in range(torch.cuda.device_count()))
    except Exception:
        return 0


class Line(NamedTuple):
    filename: str
    number: int
    bytes_per_iteration: float
    objects_per_iteration: float
    # if the line calls a library that allocates the memory, the file and line in the library;
    # otherwise None
    inside: Optional[tuple[str, int]]


def _is_library(filename: str) -> bool:
    return filename.startswith(("<", sys.base_prefix + "/lib", sys.prefix + "/lib")) or any(
        part in filename for part in ("/site-packages/", "/dist-packages/")
    )


def _line_of(stat: tracemalloc.StatisticDiff, iterations: int) -> Line:
    frames = list(stat.traceback)  # traceback lists the innermost frame last
    inner = frames[-1]
    own = next((f for f in reversed(frames) if not _is_library(f.filename)), inner)
    inside = None if own is inner else (inner.filename, inner.lineno)
    return Line(
        own.filename,
        own.lineno,
        stat.size_diff / iterations,
        stat.count_diff / iterations,
        inside,
    )


class Meter:
    """Measures the live memory after each iteration. tracemalloc counts Python's memory, including
    numpy's arrays; malloc's own counters count native memory, including large Python objects;
    torch's allocator counts GPU memory. All counts are exact. Cyclic garbage is collected first,
    because it is not a leak."""

    def __init__(self, capacity: int):
        # The arrays have their final size from the start. If they grew, their own growth would be
        # measured too.
        self.series = {
            name: array("q", bytes(8 * capacity)) for name in ("python", "native", "gpu")
        }
        self.n = 0
        self.capacity = capacity
        self._was_tracing = False
        self._malloc = _malloc_reader()
        self._snapshot: Optional[tracemalloc.Snapshot] = None

    def start(self) -> None:
        gc.collect()
        gc.freeze()  # from now on, garbage collections visit only objects created by the iterations
        self._was_tracing = tracemalloc.is_tracing()
        if not self._was_tracing:
            tracemalloc.start(16)

    def stop(self) -> None:
        self._snapshot = None
        if not self._was_tracing and tracemalloc.is_tracing():
            tracemalloc.stop()
        gc.unfreeze()

    def measure(self) -> None:
        gc.collect()
        python = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
        native = 0
        if self._malloc is not None:
            # the tables of tracemalloc use twice as much memory as get_tracemalloc_memory() reports
            native = self._malloc() - 2 * tracemalloc.get_tracemalloc_memory()
        self.series["python"][self.n] = python
        self.series["native"][self.n] = native
        self.series["gpu"][self.n] = _gpu_bytes()
        self.n += 1

    def grown_bytes(self) -> int:
        return max(s[self.n - 1] - s[0] for s in self.series.values())

    def judge(self, final: bool) -> dict[str, Verdict]:
        return {name: judge(s, self.n, final) for name, s in self.series.items()}

    def forget(self) -> None:
        """Drops traces of earlier allocations, to speed up the search for the growing line."""
        tracemalloc.clear_traces()

    def mark_lines(self) -> None:
        """Starts the search for lines that allocate memory in the following iterations and do not
        free it."""
        gc.collect()
        self._snapshot = tracemalloc.take_snapshot()

    def find_line(self, iterations: int) -> Optional[Line]:
        """Returns the line with the largest growth during the ITERATIONS since mark_lines()."""
        if self._snapshot is None:
            return None
        gc.collect()
        after = tracemalloc.take_snapshot()
        own = [
            tracemalloc.Filter(False, os.path.join(os.path.dirname(__file__), "*")),
            tracemalloc.Filter(False, tracemalloc.__file__),
        ]
        before, after = self._snapshot.filter_traces(own), after.filter_traces(own)
        stats = after.compare_to(before, "traceback")
        # A leak adds objects in each iteration, whereas enlarging a buffer or replacing an object
        # by a larger one adds bytes but no objects.
        grown = [s for s in stats if s.count_diff * 2 >= iterations]
        grown = grown or [s for s in stats if s.size_diff >= _NEGLIGIBLE_BYTES * iterations]
        return _line_of(grown[0], iterations) if grown else None
