"""Who speaks of steps: while the callback of a framework does, the hooks on bare torch are silent."""

from __future__ import annotations

_speakers: set[int] = set()


def begin(owner: object) -> None:
    """OWNER tells the steps from now on."""
    _speakers.add(id(owner))


def end(owner: object) -> None:
    """It does not any more. Harmless where it never did."""
    _speakers.discard(id(owner))


def is_taken() -> bool:
    """Does a framework's callback tell the steps?"""
    return bool(_speakers)
