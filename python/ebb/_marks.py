"""Marks that the job itself sends: steps, phases, other events, and answers to checkpoint
requests."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from . import _control
from ._wire import Request, Value, rank_of_environment, wire

_pending: Optional[Request] = None  # the checkpoint request that is still unanswered, or None
_has_hello = False


def _hello() -> None:
    global _has_hello
    if not _has_hello:
        _has_hello = True
        wire().listen(rank_of_environment())


def step(
    n: int,
    *,
    epoch: Optional[float] = None,
    steps_per_epoch: Optional[int] = None,
    max_steps: Optional[int] = None,
) -> None:
    """Reports that step N has ended. N counts optimizer steps, from 1."""
    w = wire()
    if not w.is_there:
        return
    if epoch is None and (steps_per_epoch, max_steps) == _tail_of and type(n) is int:
        if w.is_sent_by_job and w.hold(n, _tail_text):
            return
    try:
        n = int(n)
    except (TypeError, ValueError, OverflowError):
        # Invalid arguments are ignored, because outside a run they have no effect either.
        return
    if not _has_hello:
        _hello()
    w.claim_steps()
    try:
        tail = _tail(steps_per_epoch, max_steps)
        epoch = None if epoch is None else _finite(epoch)
    except Exception:  # a value that cannot be converted is sent unchanged
        w.mark(
            "step",
            step=n,
            epoch=epoch,
            steps_per_epoch=steps_per_epoch,
            max_steps=max_steps,
            rank=rank_of_environment(),
        )
        _control.at_step(n)
        return
    if w.step(n, epoch, tail):
        _control.at_step(n)


def _finite(epoch: float) -> float:
    int(epoch)
    return epoch if type(epoch) is int else float(epoch)


_tail_of: Optional[tuple[Optional[int], Optional[int]]] = None
_tail_text = ""


def _tail(steps_per_epoch: Optional[int], max_steps: Optional[int]) -> str:
    """Returns the lines of a step's mark that are usually the same for many steps."""
    global _tail_of, _tail_text
    if (steps_per_epoch, max_steps) != _tail_of:
        sent = {
            "STEPS_PER_EPOCH": steps_per_epoch,
            "MAX_STEPS": max_steps,
            "RANK": rank_of_environment(),
        }
        found = "".join(f"\n{key}={int(n)}" for key, n in sent.items() if n is not None)
        _tail_of, _tail_text = (steps_per_epoch, max_steps), found
    return _tail_text


def mark(kind: str = "other", **values: Value) -> None:
    """Records an event that is neither a step nor a phase, such as mark("save", step=100) or
    mark(loss=0.1)."""
    w = wire()
    if kind == "step" or kind == "begin":
        w.claim_steps()
    w.mark(kind, kind != "other", **values)


class phase:
    """Marks the beginning and end of a phase: with ebb.phase("eval"): …"""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "phase":
        wire().mark("phase", True, name=self.name, state="begin")
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        wire().mark("phase", True, name=self.name, state="end")


def checkpoint_requested() -> bool:
    """Returns True from the time when ebb requests a checkpoint until checkpoint_done or
    checkpoint_failed is called."""
    global _pending
    w = wire()
    if not w.is_there:
        return False
    if not _has_hello:
        _hello()
    found = w.requests("CHECKPOINT")
    if found:
        _pending = found[-1]
        w.answer(_pending, "started")
    return _pending is not None


def _finish(status: str, path: Optional[str]) -> None:
    global _pending
    if _pending is not None:
        wire().answer(_pending, status, path)
    _pending = None


def checkpoint_done(path: Optional[str] = None) -> None:
    """Reports that the requested checkpoint is completely written."""
    _finish("done", None if path is None else str(path))


def checkpoint_failed() -> None:
    """Reports that the requested checkpoint could not be written."""
    _finish("failed", None)
