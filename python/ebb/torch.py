"""Live objects of this process: a census of tensors and Python objects, and its growth.

    a = ebb.torch.census()
    …
    for row in ebb.torch.census_diff(a, ebb.torch.census()):
        print(row)

Without torch, only Python objects are counted."""

from __future__ import annotations

from typing import Any, Optional, Union

from . import _census, _control
from ._census import Census, Growth, Holder, TensorRow, TypeRow
from ._wire import wire

__all__ = [
    "Census",
    "Growth",
    "Holder",
    "TensorRow",
    "TypeRow",
    "census",
    "census_diff",
    "census_every",
]


def census(step: Optional[int] = None, *, keep: bool = True, budget_s: float = 3.0) -> Census:
    """Counts live tensors (each shared storage only once) and Python objects, and finds the
    references to the largest of them. Inside a run, the census is written to the run folder unless
    KEEP is False."""
    c = _census.take(step, "call", budget_s)
    if keep and wire().is_there:
        try:
            _census.keep(c)
        except OSError:
            pass
    return c


def census_diff(
    a: Union[Census, dict[str, Any]], b: Union[Census, dict[str, Any]], top: int = 20
) -> list[Growth]:
    """Returns the changes from A to B, largest growth first. Both may also be censuses read from
    files."""
    return _census.diff(a, b, top)


def census_every(n: int) -> None:
    """From now on, takes a census every N steps and writes it to the run folder; 0 stops this. The
    environment variable EBB_CENSUS_EVERY has the same effect."""
    _control.every(n)
