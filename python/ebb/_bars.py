"""Counts the steps of a loop by reading its tqdm progress bars, if the loop has no better step
source.

An open bar is read at most ten times per second. Every bar is read once more when it closes. If
bars are nested, only the innermost is counted. If several loops have bars, only the loop whose bars
have run longest is counted. Counting starts again when another loop has run longer. Bars that count
bytes or end within seconds are ignored, because they show downloads or the loading of files.
"""

from __future__ import annotations

import time
import weakref
from types import CodeType
from typing import Any, Optional

from ._frameworks import caller
from ._steps import Tracker

_APART_S = 0.1
_WORTH_S = 5.0  # seconds that a loop's bars must have run before the loop is treated as training
_SITES_MAX = 256

_Site = tuple[Optional[CodeType], int]


class _Bar:
    __slots__ = ("site", "start", "seen", "at")

    def __init__(self, bar: Any, now: float) -> None:
        loop = caller("tqdm")
        self.site: _Site = (loop.f_code, loop.f_lineno) if loop else (None, 0)
        self.start = float(bar.start_t)  # start time according to tqdm's clock
        self.seen = bar.initial  # the bar's count at the last reading
        self.at = now - max(0.0, time.time() - self.start)


class Bars:
    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.due = 0.0  # before this time, calls of on_update can be skipped
        self._known: "weakref.WeakKeyDictionary[Any, _Bar]" = weakref.WeakKeyDictionary()
        self._spent: dict[_Site, float] = {}  # seconds that the bars of each loop have run
        self._clock: Optional[_Site] = None  # the loop whose bars are counted as steps
        self._last: Optional[_Bar] = None  # the last bar that was counted

    def on_update(self, bar: Any) -> None:
        now = time.monotonic()
        self.due = now + _APART_S
        self._read(bar, now)

    def on_close(self, bar: Any) -> None:
        if not getattr(bar, "disable", True):
            self._read(bar, time.monotonic())

    def _read(self, bar: Any, now: float) -> None:
        if bar.disable or bar.unit_scale or bar.unit.endswith("B"):
            return
        b = self._known.get(bar)
        if b is None:
            b = self._known[bar] = _Bar(bar, now)
        last, before = self._last, b.at
        count, seconds = bar.n - b.seen, now - before
        b.seen, b.at = bar.n, now
        if count < 1 or (last is not None and last.start > b.start and last.at >= before):
            return  # a nested bar was counted since this bar was last read
        self._last = b
        if len(self._spent) >= _SITES_MAX:
            self._spent.clear()
        self._spent[b.site] = self._spent.get(b.site, 0.0) + seconds
        if self._is_clock(b.site):
            self._tracker.on_count("tqdm", int(count), seconds)

    def _is_clock(self, site: _Site) -> bool:
        spent = self._spent[site]
        if site != self._clock and spent >= _WORTH_S:
            if self._clock is None:
                self._clock = site
            elif spent > self._spent.get(self._clock, 0.0):
                self._clock = site
                if self._tracker.source == "tqdm":
                    self._tracker.restart()
        return site == self._clock
