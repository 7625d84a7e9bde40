"""Reads the memory of this process from the kernel and from CUDA, at a cost low enough for every
step."""

from __future__ import annotations

import os
import sys
from typing import Optional

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES_READ = 512
MIB = 1 << 20


def rss_bytes() -> Optional[int]:
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def written_bytes(address: int, size: int) -> int:
    """Estimates how many of the SIZE bytes at ADDRESS have been written to. The kernel creates a
    page of a large memory block only at the first write to that page. The estimate checks evenly
    spaced pages."""
    pages = size // _PAGE
    if pages < _PAGES_READ:
        return size
    found = 0
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as f:
            for i in range(_PAGES_READ):
                f.seek((address // _PAGE + 1 + i * (pages - 1) // _PAGES_READ) * 8)
                bits = f.read(8)[7]
                # a page of a file or of shared memory: any process may have written it, so all
                # pages count as written
                if bits & 0x20:
                    return size
                found += bits & 0xC0 != 0  # the page is present, or swapped out
    except (OSError, IndexError):
        return size
    return size if found == _PAGES_READ else size * found // _PAGES_READ


def peak_bytes() -> Optional[int]:
    """Returns the peak resident memory in bytes. ru_maxrss is not used, because exec does not reset
    it."""
    try:
        with open("/proc/self/status", "rb") as f:
            for line in f:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def cuda_bytes() -> Optional[tuple[int, int]]:
    """Returns the bytes that torch has allocated and reserved on all devices, or None if CUDA is
    not in use."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        devices = range(torch.cuda.device_count())
        return (
            sum(torch.cuda.memory_allocated(d) for d in devices),
            sum(torch.cuda.memory_reserved(d) for d in devices),
        )
    except Exception:
        return None


def for_logs() -> dict[str, float]:
    """Returns the memory metrics in MiB, as entries for a trainer's logs."""
    rss, peak = rss_bytes(), peak_bytes()
    if rss is not None and peak is not None:
        # the kernel updates its counters with a delay, so the peak may be below the current value
        peak = max(peak, rss)
    found: dict[str, Optional[int]] = {"rss": rss, "rss_peak": peak}
    cuda = cuda_bytes()
    if cuda is not None:
        found["cuda_allocated"], found["cuda_reserved"] = cuda
    return {f"memory_{k}_mib": round(v / MIB, 1) for k, v in found.items() if v is not None}
