"""Metrics of the allocators, read at the end of steps: the live heap, torch's CUDA memory, pinned
memory, JAX's arrays and device memory, the garbage collector's counters. They are sent in
KIND=series marks.

RSS also includes freed memory that allocators retain; these metrics count only live memory."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any, Callable, Optional

from ._wire import figures_wire

_INTERVAL_S = 0.5  # minimum seconds between readings; ebb samples once per second
_SHARE = 400  # a reading may take at most 1/400 of the time since the previous one
_SLOW_S = 0.002
# seconds to pause after a slow reading; doubled after each further slow reading
_PAUSE_S = 1.0
# maximum pause in seconds; readings never stop completely, because the machine may have been busy
# only temporarily
_PAUSE_MAX_S = 60.0
# if there are more arrays than this, their total size is not computed, because it would take
# milliseconds
_JAX_ARRAYS = 5000
_GC_NAMES = tuple(f"gc_{what}_{i}" for what in ("count", "threshold") for i in range(3))


def _heap_reader() -> Optional[Callable[[], tuple[int, int]]]:
    """Returns a function that reads malloc's bytes in use and the bytes that malloc retains.
    Returns None without glibc's malloc or without mallinfo2, which exists since glibc 2.33."""
    try:
        import ctypes

        # calls through PyDLL hold the GIL, because releasing it would cost more than the call
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


def _pool_readers() -> dict[str, Callable[[], int]]:
    """Returns a function for each loaded allocator other than glibc's malloc. The function reads
    the bytes that are live in this allocator. Only allocators whose symbols are in the global scope
    are included."""
    import ctypes

    c, size = ctypes.PyDLL(None), ctypes.c_size_t

    def read_jemalloc() -> int:
        epoch, value, length = ctypes.c_uint64(1), size(), size(ctypes.sizeof(size))
        c.mallctl(b"epoch", None, None, ctypes.byref(epoch), size(8))
        failed = c.mallctl(b"stats.allocated", ctypes.byref(value), ctypes.byref(length), None, 0)
        return 0 if failed else value.value

    def read_mimalloc() -> int:
        values = [size() for _ in range(8)]
        c.mi_process_info(*map(ctypes.byref, values))
        return values[5].value  # bytes committed at present

    def read_tcmalloc() -> int:
        value = size()
        c.MallocExtension_GetNumericProperty(
            b"generic.current_allocated_bytes", ctypes.byref(value)
        )
        return value.value

    readers = {
        "mallctl": ("jemalloc", read_jemalloc),
        "mi_process_info": ("mimalloc", read_mimalloc),
        "MallocExtension_GetNumericProperty": ("tcmalloc", read_tcmalloc),
    }
    return {name: read for symbol, (name, read) in readers.items() if hasattr(c, symbol)}


_pools: dict[str, Callable[[], int]] = {}
_heap: Optional[Callable[[], tuple[int, int]]] = None
_is_ready = False


def _prepare() -> None:
    global _heap, _pools, _is_ready
    if not _is_ready:
        _heap, _is_ready = _heap_reader(), True
        try:
            _pools = _pool_readers()
        except Exception:  # no ctypes
            pass


def _read_heap(figures: dict[str, int]) -> None:
    if _heap is not None:
        figures["heap_live_bytes"], figures["heap_free_bytes"] = _heap()


def _read_pools(figures: dict[str, int]) -> None:
    """Adds pool_arrow, pool_jemalloc and similar metrics of loaded libraries that allocate memory
    without malloc."""
    for name, read_pool in _pools.items():
        figures[f"pool_{name}"] = read_pool()
    arrow: Any = sys.modules.get("pyarrow")
    total = getattr(arrow, "total_allocated_bytes", None)
    if total is not None:
        figures["pool_arrow"] = int(total())


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


def _read_jax(figures: dict[str, int]) -> None:
    """Adds jax_live_bytes. Also adds jax_device_bytes if JAX's devices report their memory; the CPU
    does not report it."""
    jax: Any = sys.modules.get("jax")
    # if JAX has no backend yet, it is not read: local_devices and live_arrays would start a
    # backend, and a backend reserves GPU memory
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    if jax is None or bridge is None or not bridge.backends_are_initialized():
        return
    stats = [device.memory_stats() for device in jax.local_devices()]
    in_use = [int(one["bytes_in_use"]) for one in stats if one]
    if in_use:
        figures["jax_device_bytes"] = sum(in_use)
    arrays = jax.live_arrays()
    if len(arrays) <= _JAX_ARRAYS:
        figures["jax_live_bytes"] = sum(int(array.nbytes) for array in arrays)


def _read_gc(figures: dict[str, int]) -> None:
    figures.update(zip(_GC_NAMES, gc.get_count() + gc.get_threshold()))


def read() -> dict[str, int]:
    """Returns all metrics that are available now. Never raises; metrics that cannot be read are
    omitted."""
    figures: dict[str, int] = {}
    _prepare()
    for read_some in (_read_heap, _read_pools, _read_cuda, _read_jax, _read_gc):
        try:
            read_some(figures)
        except Exception:
            continue
    return figures


_next = 0.0  # time when the next reading is due
_step_s = 0.0  # time when the last step ended
_IDLE_STEPS_S = 5.0  # seconds without a step after which a thread reads the metrics
_pause_s = 0.0  # seconds to pause, or 0 if the last reading was not slow
_is_off: Optional[bool] = None


def reset() -> None:
    """Resets all state, so that another ebb can attach."""
    global _next, _step_s, _pause_s, _is_off
    _next = _step_s = _pause_s = 0.0
    _is_off = None


def at_step(n: Optional[int] = None) -> None:
    """Reads and sends the metrics if a reading is due. Called at the end of a step."""
    global _step_s
    _step_s = time.monotonic()
    if _step_s >= _next:
        _read_and_send(_step_s)


def without_steps() -> None:
    """Like at_step, but called by a thread if no step has ended for some time."""
    now = time.monotonic()
    if now >= _next and now - _step_s > _IDLE_STEPS_S:
        _read_and_send(now)


def _read_and_send(now: float) -> None:
    global _next, _pause_s, _is_off
    if not _is_ready:
        _prepare()
        now = time.monotonic()
    if _is_off is None:
        _is_off = os.environ.get("EBB_TRUTH", "1") == "0"
    w = figures_wire()
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
