"""A thread that reads the memory of a process once per second if the process reports no steps."""

from __future__ import annotations

from typing import Any

from . import _containers, _truth

_INTERVAL_S = 1.0


def run(bell: Any) -> None:
    """Reads the memory repeatedly until the main thread releases the lock BELL."""
    while not bell.acquire(True, _INTERVAL_S):
        _truth.without_steps()
        _containers.without_steps()
