"""Calls a callback with a copy of each mark that this process sends. The copy is a dict; the mark
itself is still sent to ebb."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Union

from ._wire import Wire, wire

Mark = dict[str, Union[str, int, float]]
Sink = Callable[[str, bool], None]

# kinds of marks that do not report the job's progress
_INTERNAL = ("KIND=hello\n", "KIND=ack\n", "KIND=query\n", "KIND=census\n", "KIND=kept\n")

_process_sink: Optional[Sink] = None
_thread = threading.local()


def _sink() -> Optional[Sink]:
    return getattr(_thread, "sink", None) or _process_sink


class _TappedWire(Wire):
    @property
    def is_there(self) -> bool:
        if _sink() is None:
            return super().is_there
        return not self.is_inherited

    def _deliver(self, text: str, patience_s: Optional[float]) -> bool:
        sink = _sink()
        is_for_sink = sink is not None and self.is_there and not text.startswith(_INTERNAL)
        if sink is not None and is_for_sink:
            sink(text, bool(patience_s))
        has_arrived = False if self._is_dead else super()._deliver(text, patience_s)
        return has_arrived or is_for_sink

    def step(
        self, n: int, epoch: Optional[float] = None, tail: str = "", is_last: bool = False
    ) -> bool:
        # every step is sent at once, because the sink must receive each of them
        if _sink() is not None:
            self._step_due = 0.0
        return super().step(n, epoch, tail, is_last)

    def hold(self, n: int, tail: Optional[str], epoch: Optional[float] = None) -> bool:
        return _sink() is None and super().hold(n, tail, epoch)

    def substep(self, n: int, tail: str = "") -> None:
        if _sink() is not None:
            self._substep_due = 0.0
        super().substep(n, tail)

    def send_figures(self, text: str) -> bool:
        return False if self._is_dead else super()._deliver(text, 0.0)

    def bind(self) -> bool:
        return False if self._is_dead else super().bind()


def _tap() -> None:
    # Modifies the existing wire instead of replacing it, because other objects refer to the
    # existing wire, and the wire may already have sent its hello.
    w = wire()
    if type(w) is Wire:
        w.__class__ = _TappedWire


def tap_process(sink: Sink) -> None:
    """Passes every mark of this process to SINK(text, must_arrive)."""
    global _process_sink
    _process_sink = sink
    _tap()


class tap_thread:
    """Passes the marks of this thread to SINK: with tap_thread(sink): …"""

    def __init__(self, sink: Sink) -> None:
        self._mine = sink

    def __enter__(self) -> None:
        self._before = getattr(_thread, "sink", None)
        _thread.sink = self._mine
        _tap()

    def __exit__(self, *_: Any) -> None:
        _thread.sink = self._before


def _value(text: str) -> Union[str, int, float]:
    """Returns the int or float whose repr is TEXT, or TEXT itself if there is none."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if repr(number) == text:
            return number
    return text


def as_dict(text: str) -> Mark:
    """KIND=step\\nSTEP=3 → {"kind": "step", "step": 3}."""
    lines = (line.partition("=") for line in text.splitlines())
    return {key.lower(): _value(value) for key, equals, value in lines if equals}
