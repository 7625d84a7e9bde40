"""Who keeps what piles up: containers that come to hold more and more while memory grows.

A stack tells who made memory, not who keeps it. So where memory has grown, and only there, the
lengths of all lists, dictionaries, sets and queues are read where a step has ended, and again when
it has grown once more; those that gained most are named and told in marks of kind kept. No object
is held meanwhile, no code of the job's is called for its containers, and the time is bounded."""

from __future__ import annotations

import gc
import os
import sys
import time
from array import array
from collections import OrderedDict, defaultdict, deque
from inspect import CO_OPTIMIZED
from itertools import compress, filterfalse, islice, repeat
from operator import sub
from types import FrameType
from typing import Any, Optional

from . import _memory, _referrers
from ._wire import wire

_GROWN_BYTES = 24 << 20  # since the first step, and …
_GROWN_SHARE = 0.02  # … so much of the process: else there is nothing to explain
_AGAIN = 2.0  # times as much as at the last look: few looks, however long it goes on
_INTERVAL_S = 0.5  # between two looks at resident memory
_BUDGET_S = 0.3  # for all looks together, or …
_SHARE = 400  # … a part of the time since the first step
_YOUNG_SHARE = 20  # of that time a part at most, even so: a job of seconds is not held up
_BLOCK_S = 1e-7  # that a look takes for each block of the interpreter, as long as none was taken
_WALL_S = 2.0  # for the names of one look, on a machine with other work
_OBJECTS_MAX = 2_000_000  # blocks of the interpreter: a list of all objects must stay small
_LENGTH_MIN = 2
_ADDED_MIN = 2  # entries that one must have gained
_SEEN_MAX = 96  # of those that gained any, how many are weighed
_NAMED_MAX = 3
_TOLD_BYTES = 1 << 20
_TOLD_SHARE = 0.1  # of what memory has grown by
_ENTRIES = 4  # the newest, which stand for all that came; several may belong together

_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
_NUMBERS = frozenset(map(id, _CONTAINERS))  # types may have a hash of the job's own making


_DICT = frozenset((id(dict),))


def _of_types(objects: list[Any], numbers: frozenset[int]) -> list[Any]:
    return list(compress(objects, map(numbers.__contains__, map(id, map(type, objects)))))


def _variables() -> list[Any]:
    """What the variables of the functions that run here refer to."""
    found: list[Any] = []
    f: Optional[FrameType] = sys._getframe(1)
    while f is not None:
        if f.f_code.co_flags & CO_OPTIMIZED and not _referrers.is_our_frame(f):
            found += _referrers.variables(f)
        f = f.f_back
    return found


def _untracked(own: list[Any], instances: list[Any], variables: list[Any]) -> list[Any]:
    """Dictionaries of arrays, bytes and numbers alone, which gc leaves out: found through the
    program's own variables and the attributes of its own objects."""
    found = own + gc.get_referents(*instances)
    attributes = list(filter(gc.is_tracked, _of_types(found, _DICT)))
    found += gc.get_referents(*attributes) + variables
    return list({id(d): d for d in filterfalse(gc.is_tracked, _of_types(found, _DICT))}.values())


def _containers() -> list[Any]:
    variables = _variables()  # before all objects are held: some of them are copies of these
    modules = [m.__dict__ for m in list(sys.modules.values()) if _referrers.is_program_s(m)]
    own = [v for d in modules for v in list(d.values())]
    classes = frozenset(id(v) for v in own if issubclass(type(v), type))
    objects = _of_types(gc.get_objects(), _NUMBERS | classes)  # once: there are many
    return _of_types(objects, _NUMBERS) + _untracked(own, _of_types(objects, classes), variables)


class _Lengths:
    """What was read at one look: numbers alone, so that nothing is kept alive by it. And nothing is
    made for each container that gc counts: it would go through all objects once more."""

    def __init__(
        self, step: Optional[int], rss: int, found: list[Any], lengths: array[int]
    ) -> None:
        is_long = list(map(_LENGTH_MIN.__le__, lengths))
        self.step, self.rss = step, rss
        self.ids = array("Q", map(id, compress(found, is_long)))
        self.lengths = array("Q", compress(lengths, is_long))

    def gained(self, found: list[Any], lengths: array[int]) -> list[tuple[int, Any]]:
        """(entries, container) of those that have more now; the most first."""
        before = dict(zip(self.ids, self.lengths))
        added = list(map(sub, lengths, map(before.get, map(id, found), repeat(1 << 62))))
        more = list(compress(zip(added, found), map(_ADDED_MIN.__le__, added)))
        more.sort(key=lambda pair: -pair[0])
        return more[:_SEEN_MAX]


# ---- how much it is ----


def _newest(o: Any) -> list[Any]:
    if type(o) in (list, deque):
        return [o[-1 - i] for i in range(min(_ENTRIES, len(o)))]
    if type(o) is set:
        return list(islice(o, _ENTRIES))
    return list(islice(reversed(o.items()), _ENTRIES))


def _heaviest(
    gained: list[tuple[int, Any]], least: float, until: float
) -> list[tuple[int, int, Any]]:
    """(bytes, entries, container) of those with the most, and LEAST at least."""
    from . import _weight

    found, modules = [], _weight.module_numbers()
    for added, o in gained:
        if time.thread_time() > until:
            break
        try:
            found.append((added * _weight.of_one(_newest(o), o, modules), added, o))
        except Exception:  # it changed meanwhile: another thread has it
            continue
    found = [f for f in found if f[0] >= least]
    found.sort(key=lambda f: -f[0])
    return found[:_NAMED_MAX]


# ---- looking ----

_last: Optional[_Lengths] = None
_names: dict[int, str] = {}  # of those that were named before
_base: Optional[int] = None  # resident when the first step had ended
_begun_s = _next_s = _spent_s = _look_s = 0.0  # the last: what a look took
_is_off: Optional[bool] = None


def _may_look() -> bool:
    """Where it can be done at all: not with threads that really run at the same time."""
    if os.environ.get("EBB_KEEPERS", "1") == "0" or sys.implementation.name != "cpython":
        return False
    gil = getattr(sys, "_is_gil_enabled", None)
    return gil is None or bool(gil())


def _tell(
    step: Optional[int], rss: int, before: _Lengths, gained: list[tuple[int, Any]]
) -> None:
    least = max(_TOLD_BYTES, _TOLD_SHARE * (rss - before.rss))
    found = _heaviest(gained, least, time.thread_time() + _BUDGET_S / 2)
    until = time.monotonic() + _WALL_S
    ours: list[Any] = [gained, found, *gained, *found]
    w = wire()
    w.mark("kept", True, step=step, since=before.step)  # what was told before is over
    for size, added, o in found:
        name = _names.get(id(o)) or _referrers.owner(o, ours, until)
        if not name:
            continue
        _names[id(o)] = name
        w.mark(
            "kept",
            True,
            step=step,
            since=before.step,
            name=name,
            type=type(o).__name__,
            added=added,
            bytes=min(size, rss - before.rss),
        )


def _look(step: Optional[int], rss: int) -> None:
    global _last, _look_s
    before, _last = _last, None
    if sys.getallocatedblocks() > _OBJECTS_MAX:
        return
    begun = time.thread_time()
    found = _containers()
    lengths = array("Q", map(len, found))
    last = _Lengths(step, rss, found, lengths)
    _look_s = time.thread_time() - begun
    if before is not None and step != before.step:
        gained = before.gained(found, lengths)
        del found  # names are looked for among who refers to what
        _tell(step, rss, before, gained)
    _last = last


def _is_time(ran_s: float) -> bool:
    if _spent_s > max(_BUDGET_S, ran_s / _SHARE):
        return False
    look_s = _look_s or sys.getallocatedblocks() * _BLOCK_S
    return (_spent_s + look_s) * _YOUNG_SHARE <= ran_s


def at_step(step: Optional[int] = None) -> None:
    """Looks, if memory has grown and there is time. To be called where a step has ended."""
    global _next_s, _is_off, _base, _begun_s, _spent_s
    now = time.monotonic()
    if now < _next_s:
        return
    _next_s = now + _INTERVAL_S
    if _is_off is None:
        _is_off, _begun_s = not _may_look(), now
    rss = None if _is_off or not wire().is_there else _memory.rss_bytes()
    if rss is None:
        return
    if _base is None:
        _base = rss
    grown = max(_GROWN_BYTES, _GROWN_SHARE * _base)
    if _last is not None:
        grown = max(grown, _AGAIN * (_last.rss - _base))
    if rss < _base + grown or not _is_time(now - _begun_s):
        return
    begun = time.thread_time()
    try:
        _look(step, rss)
    except Exception:  # a diagnosis is not worth a job
        _is_off = True
    _spent_s += time.thread_time() - begun
