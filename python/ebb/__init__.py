"""ebb: tell it where your training is, and hear what it asks.

Everything here is cheap enough for every step and does nothing outside of `ebb run`.

    import ebb
    for n, batch in enumerate(batches, 1):
        train(batch)
        ebb.step(n)
        if ebb.checkpoint_requested():
            save("checkpoint")
            ebb.checkpoint_done("checkpoint")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._marks import checkpoint_done, checkpoint_failed, checkpoint_requested, mark, phase, step
from ._verdict import verdict

if TYPE_CHECKING:
    from ._isolate import (
        IsolatedCall,
        IsolatedError,
        MemoryLimitExceeded,
        isolate,
        isolate_async,
        isolate_start,
    )

__version__ = "0.1.0"
__all__ = [
    "IsolatedCall",
    "IsolatedError",
    "MemoryLimitExceeded",
    "checkpoint_done",
    "checkpoint_failed",
    "checkpoint_requested",
    "isolate",
    "isolate_async",
    "isolate_start",
    "mark",
    "phase",
    "step",
    "verdict",
]


_ISOLATE = (
    "IsolatedCall",
    "IsolatedError",
    "MemoryLimitExceeded",
    "isolate",
    "isolate_async",
    "isolate_start",
)


_MODULES = ("data", "hf", "lightning", "torch")


def __getattr__(name: str) -> Any:
    # what few need is imported by those who use it
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    if name in _ISOLATE:
        from . import _isolate

        return getattr(_isolate, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
