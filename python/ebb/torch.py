"""What is alive in this process: a census of tensors and Python objects, and what grew.

    a = ebb.torch.census()
    …
    for row in ebb.torch.census_diff(a, ebb.torch.census()):
        print(row)

Without torch it counts objects alone."""

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
    """Counts live tensors (a storage once, however many share it) and Python objects, and looks who
    holds the largest. Inside a run it is kept in the run folder, unless KEEP is false."""
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
    """What changed from A to B, the most growth first. Either may be one read from its file."""
    return _census.diff(a, b, top)


def census_every(n: int) -> None:
    """From now on a census at every step that N divides, kept in the run folder; 0 ends it. The
    variable EBB_CENSUS_EVERY does the same from outside."""
    _control.every(n)
