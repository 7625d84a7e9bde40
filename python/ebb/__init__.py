"""ebb: reports the steps of a training run, and receives ebb's requests and verdicts.

Every function is cheap enough to be called at every step, and does nothing outside of `ebb run`.

    import ebb
    for n, batch in enumerate(batches, 1):
        train(batch)
        ebb.step(n)
        if ebb.checkpoint_requested():
            save("checkpoint")
            ebb.checkpoint_done("checkpoint")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._isolate import (
        IsolatedCall,
        IsolatedError,
        MemoryLimitExceeded,
        isolate,
        isolate_async,
        isolate_start,
    )
    from ._marks import (
        checkpoint_done,
        checkpoint_failed,
        checkpoint_requested,
        mark,
        phase,
        step,
    )
    from ._verdict import verdict

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


_MODULES = ("data", "hf", "lightning", "torch")
_HOMES = {
    "_isolate": (
        "IsolatedCall",
        "IsolatedError",
        "MemoryLimitExceeded",
        "isolate",
        "isolate_async",
        "isolate_start",
    ),
    "_marks": (
        "checkpoint_done",
        "checkpoint_failed",
        "checkpoint_requested",
        "mark",
        "phase",
        "step",
    ),
    "_verdict": ("verdict",),
}


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this for `%load_ext ebb`. Adds the cell magic %%ebb."""
    from . import _notebook

    _notebook.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    from . import _notebook

    _notebook.unload(shell)


def __getattr__(name: str) -> Any:
    # Most modules are imported at first use: the shim imports this package into every program that
    # imports torch, so importing it must be cheap.
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if os.environ.get("EBB_ATTACH") == "1":
    from . import _optin  # noqa: F401
