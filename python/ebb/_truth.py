"""What the allocators themselves say, at the end of steps: the live heap, torch's CUDA memory,
pinned memory, the garbage collector's counters. Sent as marks of kind series.

RSS cannot tell memory that is in use from memory that an allocator keeps; these figures can."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any, Callable, Optional

from ._wire import wire

_INTERVAL_S = 0.5  # ebb looks once a second: more often would be for nobody
_SHARE = 400  # of the time between two readings, one part at most
_SLOW_S = 0.002
_PAUSE_S = 1.0  # after a slow one, and twice as long after each that follows it …
_PAUSE_MAX_S = 60.0  # … up to this: one alone may have been the machine's fault
_GC_NAMES = tuple(f"gc_{what}_{i}" for what in ("count", "threshold") for i in range(3))


def _heap_reader() -> Optional[Callable[[], tuple[int, int]]]:
    """Bytes in use, and bytes that are free and kept: mallinfo2 of glibc 2.33 and later, where
    glibc's is the malloc in use."""
    try:
        import ctypes

        # the lock of the interpreter is kept: to give it back and wait for it costs more
        libc = ctypes.PyDLL(None)
        if hasattr(libc, "mallctl") or hasattr(libc, "tc_malloc") or hasattr(libc, "mi_malloc"):
            return None
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

        class Mallinfo2(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

        call = libc.mallinfo2
        call.restype = Mallinfo2
        call.argtypes = []
    except Exception:
        return None

    def read_heap() -> tuple[int, int]:
        info = call()
        return int(info.uordblks + info.hblkhd), int(info.fordblks)

    return read_heap


_heap: Optional[Callable[[], tuple[int, int]]] = None
_is_ready = False


def _prepare() -> None:
    global _heap, _is_ready
    if not _is_ready:
        _heap, _is_ready = _heap_reader(), True


def _read_heap(figures: dict[str, int]) -> None:
    if _heap is not None:
        figures["heap_live_bytes"], figures["heap_free_bytes"] = _heap()


def _read_cuda(figures: dict[str, int]) -> None:
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    stats = cuda.memory_stats_as_nested_dict()
    figures["cuda_allocated_bytes"] = int(stats["allocated_bytes"]["all"]["current"])
    figures["cuda_reserved_bytes"] = int(stats["reserved_bytes"]["all"]["current"])
    host = getattr(cuda, "host_memory_stats", None)
    if host is not None:
        pinned = host().get("allocated_bytes.current")
        if pinned is not None:
            figures["pinned_host_bytes"] = int(pinned)


def _read_gc(figures: dict[str, int]) -> None:
    figures.update(zip(_GC_NAMES, gc.get_count() + gc.get_threshold()))


def read() -> dict[str, int]:
    """All that is to be had now. Never raises; what cannot be read is left out."""
    figures: dict[str, int] = {}
    _prepare()
    for look in (_read_heap, _read_cuda, _read_gc):
        try:
            look(figures)
        except Exception:
            continue
    return figures


_next = 0.0  # not before then
_pause_s = 0.0  # the last one was slow
_is_off: Optional[bool] = None


def at_step(n: Optional[int] = None) -> None:
    """Reads and sends, if it is time. To be called where a step has ended."""
    global _next, _pause_s, _is_off
    now = time.monotonic()
    if now < _next:
        return
    if not _is_ready:
        _prepare()
        now = time.monotonic()
    if _is_off is None:
        _is_off = os.environ.get("EBB_TRUTH", "1") == "0"
    w = wire()
    if _is_off or not w.is_there:
        _next = now + _PAUSE_MAX_S
        return
    figures = read()
    if figures:
        lines = "\n".join(f"{k.upper()}={v}" for k, v in figures.items())
        w.send_figures("KIND=series\n" + lines)
    cost = time.monotonic() - now
    if cost > _SLOW_S:
        _pause_s = min(max(2 * _pause_s, _PAUSE_S), _PAUSE_MAX_S)
    else:
        _pause_s = 0.0
    _next = now + (_pause_s or max(_INTERVAL_S, cost * _SHARE))
