"""Finds containers that gain entries while memory grows, and thereby keep memory alive. An array or
text that is replaced by a longer one in the same variable, as with torch.cat, is treated as a
container. A large array that a program fills part by part for the first time is also treated as a
container, whose maximum length is the size of the array.

A stack trace shows the line that allocated memory, not the reference that keeps it alive. Therefore
the lengths of all lists, dictionaries, sets and queues are read repeatedly, at the end of steps.
Without steps, a thread reads the lengths of those containers to which variables of the program
refer. The containers that gain the most entries are followed. Three metrics of each are sent: its
number of entries (container:NAME), its estimated bytes (container_bytes:NAME) and, if it is
limited, its maximum number of entries (container_limit:NAME). When memory has grown significantly,
the followed containers are also reported in KIND=kept marks. Scans keep no object alive, call no
code of the job, and take a bounded time.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from inspect import CO_OPTIMIZED
from itertools import compress, filterfalse, islice, repeat
from operator import sub
from types import FrameType
from typing import Any, Container, Iterable, NamedTuple, Optional, Union

from . import _memory, _referrers
from ._wire import clean, figures_wire

# growing containers are reported once memory has grown by this many bytes since the first step
_GROWN_BYTES = 24 << 20
# minimum growth for a report, as a fraction of the process's memory at the first step
_GROWN_SHARE = 0.02
# another report is made once the growth is this multiple of the growth at the last report
_AGAIN = 2.0
# containers are scanned once memory has grown by this many bytes since the first step
_WORTH_BYTES = 1 << 20
_INTERVAL_S = 1.0  # seconds between two scans
# maximum fraction of the run time spent on scans of the program's own variables
_VARIABLES_SHARE = 0.006
_SHARE = 0.0025  # maximum fraction of the time since the first step spent on full scans
# A full scan for a due report may exceed _SHARE if all full scans together take at most this many
# seconds and at most _YOUNG_SHARE of the run time.
_BUDGET_S = 0.3
_YOUNG_SHARE = 0.05
# estimated duration of the first full scan, in seconds per allocated memory block
_BLOCK_S = 1e-7
_WALL_S = 2.0  # maximum wall-clock seconds of the search for the names in a report
_NAMES_S = 0.1  # maximum seconds of the search for names after a full scan
# maximum number of new names per full scan, because each search for a name visits all objects
# several times
_NAMES = 2
# maximum number of allocated memory blocks for a full scan; above it, the list of all objects would
# be too large
_OBJECTS_MAX = 2_000_000
_LENGTH_MIN = 2
_ADDED_MIN = 2  # minimum number of entries that a container must gain to be reported
_GAINED_MAX = 1000
# maximum number of containers whose bytes are estimated: those that gained the most entries
_WEIGHED_MAX = 96
_NAMED_MAX = 3  # maximum number of containers named in a report
_KEPT_BYTES = 1 << 20
# minimum fraction of the memory growth that a container must explain to be reported
_KEPT_SHARE = 0.1
_ENTRIES = 4  # number of newest entries whose mean size is taken as the size of every new entry
_FOLLOWED_MAX = 8
# minimum bytes that a container must gain between two scans to be followed
_FOLLOWED_BYTES = 16 << 10
_NESTED_MAX = 100_000
_GRAPH_NODES = 20_000  # maximum number of nodes visited in one autograd graph
# maximum number of variables for which the initial size of the autograd graph is remembered
_FIRST_GRAPHS = 1000
# maximum number of entries of a dictionary that are checked for tensors with an autograd graph
_GRAPH_ENTRIES = 16
_LARGE_BYTES = 16 << 20  # minimum size in bytes of an array whose written part is measured
_LARGE_MAX = 16  # maximum number of large arrays measured per scan
_NAME_MAX = 62  # maximum length of a metric's name
_IDLE_STEPS_S = 5.0  # seconds without a step after which a thread scans

_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict, Counter)
# Types of arrays and texts: module, type name. They are not containers, but they can grow too: a
# program may extend them or replace them by longer ones.
_VALUES = (
    ("torch", "Tensor"), ("numpy", "ndarray"), ("builtins", "bytearray"), ("builtins", "bytes"),
    ("builtins", "str"),
)
_DICT = frozenset((id(dict),))
_CACHE = frozenset((id(_referrers.CACHE_TYPE),))
# type name of the values in the dictionary of an lru_cache that has a limit
_CACHE_LINK = "_lru_list_elem"
# Classes with a container of limited length: module, class, the attribute that holds the container,
# the attribute that holds the limit, and an attribute of objects whose limit is not a number of
# entries.
_LIMITED = (
    ("queue", "Queue", "queue", "maxsize", ""),
    ("asyncio.queues", "Queue", "_queue", "_maxsize", ""),
    ("cachetools", "Cache", "_Cache__data", "_Cache__maxsize", "_Cache__size"),
)


def _plain_subclasses(base: type) -> Iterable[type]:
    """Yields BASE and those of its subclasses that inherit its __len__, so that len() runs no code
    of the job."""
    yield base
    for t in type.__subclasses__(base):
        if "__len__" not in type.__dict__["__dict__"].__get__(t):
            yield from _plain_subclasses(t)


def _container_types() -> frozenset[int]:
    # types are identified by their ids, because a metaclass may define its own hash
    return frozenset(id(t) for base in _CONTAINERS for t in _plain_subclasses(base))


def _value_types() -> frozenset[int]:
    found = (getattr(sys.modules.get(module), name, None) for module, name in _VALUES)
    return frozenset(id(t) for t in found if t is not None)


def _of_types(objects: list[Any], numbers: frozenset[int]) -> list[Any]:
    return list(compress(objects, map(numbers.__contains__, map(id, map(type, objects)))))


def _variables() -> list[Any]:
    """Returns the objects to which the variables of running functions refer, in all threads."""
    found: list[Any] = []
    f: Optional[FrameType] = None
    frames = list(sys._current_frames().values())
    while frames:
        f = frames.pop()
        while f is not None:
            if f.f_code.co_flags & CO_OPTIMIZED and not _referrers.is_our_frame(f):
                found += _referrers.variables(f)
            f = f.f_back
    return found


def _untracked(own: list[Any], instances: list[Any], variables: list[Any]) -> list[Any]:
    """Returns dictionaries that gc does not track, because they contain only arrays, bytes and
    numbers. They are found through the program's own variables and the attributes of its
    objects."""
    found = own + gc.get_referents(*instances)
    attributes = list(filter(gc.is_tracked, _of_types(found, _DICT)))
    found += gc.get_referents(*attributes) + variables
    found += gc.get_referents(*_of_types(found, _CACHE))
    return list({id(d): d for d in filterfalse(gc.is_tracked, _of_types(found, _DICT))}.values())


def _containers() -> list[Any]:
    # the variables are read before gc.get_objects() creates a list that refers to all objects
    variables = _variables()
    modules = [m.__dict__ for m in list(sys.modules.values()) if _referrers.is_program_s(m)]
    own = [v for d in modules for v in list(d.values())]
    own_classes = [v for v in own if issubclass(type(v), type) and _referrers.is_program_s(
        sys.modules.get(v.__module__)
    )]
    classes = frozenset(map(id, own_classes))
    types = _container_types()
    # gc.get_objects() is called only once, because the list is long
    objects = _of_types(gc.get_objects(), types | classes)
    found = _of_types(objects, types) + _untracked(
        own, _of_types(objects, classes - types) + own_classes, variables
    )
    for ours in (variables, modules, own, own_classes):
        # FOUND may contain these four lists, because gc.get_objects() returns them too. They are
        # emptied, because a container of the job may later reuse their addresses.
        ours.clear()
    return found


class _Scan:
    """The lengths of all containers at one scan. A scan stores only numbers, so that it keeps no
    container alive. It creates no gc-tracked object per container, because many new objects would
    trigger garbage collections."""

    def __init__(
        self, step: Optional[int], rss: int, found: list[Any], lengths: array[int]
    ) -> None:
        is_long = list(map(_LENGTH_MIN.__le__, lengths))
        self.step, self.rss = step, rss
        self.graphs: dict[str, _GraphSize] = {}
        self.ids = array("Q", map(id, compress(found, is_long)))
        self.lengths = array("Q", compress(lengths, is_long))

    def gained(self, found: list[Any], lengths: array[int], least: int) -> list[tuple[int, Any]]:
        """Returns (entries gained, container) for the containers that gained at least LEAST
        entries, largest gain first."""
        before = dict(zip(self.ids, self.lengths))
        added = list(map(sub, lengths, map(before.get, map(id, found), repeat(1 << 62))))
        more = list(compress(zip(added, found), map(least.__le__, added)))
        more.sort(key=lambda pair: -pair[0])
        return more[:_GAINED_MAX]


# ---- maximum numbers of entries ----

# maximum number of entries of each limited container, by the container's id
_limits: dict[int, int] = {}
# limited lru_caches, by the id of the dictionary with their entries
_caches: dict[int, weakref.ref[Any]] = {}


def _note_limits(objects: Iterable[Any]) -> None:
    """Finds limited containers among the attributes of OBJECTS, and remembers their maximum
    lengths."""
    classes = [
        (cls, keys)
        for module, name, *keys in _LIMITED
        for cls in [getattr(sys.modules.get(module), name, None)]
        if isinstance(cls, type)
    ]
    _limits.clear()
    _caches.clear()
    for o in objects:
        found = most = None
        if type(o) is _referrers.CACHE_TYPE:
            most = _referrers.CACHE_TYPE.cache_info(o).maxsize
            found = _referrers.cache_dict(o) if most else None
            if found is not None:
                _caches[id(found)] = weakref.ref(o)
        for cls, (container, limit, other) in classes:
            if cls in type(o).__mro__:
                has = _referrers.attributes(o)
                most, found = has.get(limit), has.get(container) if other not in has else None
        if found is not None and type(most) is int and most > 0:
            _limits[id(found)] = most


def _limit_of(o: Any) -> int:
    """Returns the maximum number of entries of container O, or 0 if it is unlimited."""
    if isinstance(o, deque):
        most = deque.__dict__["maxlen"].__get__(o)
        if most is not None:
            return int(most)
    return _limits.get(id(o), 0)


# ---- bytes ----


def _newest_in_cache(d: dict[Any, Any]) -> list[Any]:
    """Returns the newest (key, result) pairs of the limited lru_cache whose dictionary is D. Python
    code cannot read the links in which the cache keeps its entries. gc returns the keys and results
    in the order of the links, and then D."""
    weak = _caches.get(id(d))
    cache = weak() if weak else None
    if cache is None:
        return []
    parts = gc.get_referents(cache)
    end = next((i for i in range(len(parts) - 1, -1, -1) if parts[i] is d), 0)
    # from Python 3.10 on, gc also returns the type of the cache and the type of each link
    parts = parts[max(0, end - 3 * _ENTRIES) : end]
    parts = [p for p in parts if not (type(p) is type and p.__name__ == _CACHE_LINK)]
    pairs = parts[-2 * min(_ENTRIES, len(d)) :]
    return list(zip(pairs[::2], pairs[1::2]))


def _newest(o: Any) -> list[Any]:
    if isinstance(o, (list, deque)):
        get = list.__getitem__ if isinstance(o, list) else deque.__getitem__
        return [get(o, -1 - i) for i in range(min(_ENTRIES, len(o)))]  # type: ignore[operator]
    if isinstance(o, set):
        return list(islice(set.__iter__(o), _ENTRIES))
    items = OrderedDict.items if isinstance(o, OrderedDict) else dict.items
    found = list(islice(reversed(items(o)), _ENTRIES))
    if found and type(found[0][1]).__name__ == _CACHE_LINK:
        return _newest_in_cache(o)
    return found


def _entry_bytes(o: Any, modules: set[int]) -> tuple[int, int]:
    """Returns the bytes that each new entry adds to container O, and how many of these bytes belong
    to the entry's autograd graph. Returns (0, 0) if another thread changed O."""
    from . import _weight

    try:
        return _weight.of_one(_newest(o), o, modules)
    except Exception:
        return 0, 0


def _heaviest(
    gained: list[tuple[int, Any]], least: float, until: float
) -> list[tuple[int, int, Any]]:
    """Returns (bytes gained, entries gained, container) for containers that gained at least LEAST
    bytes, largest gain first."""
    from . import _weight

    found, modules = [], _weight.module_numbers()
    for added, o in gained[:_WEIGHED_MAX]:
        if time.thread_time() > until:
            break
        found.append((added * _entry_bytes(o, modules)[0], added, o))
    found = [f for f in found if f[0] >= least]
    found.sort(key=lambda f: -f[0])
    return found


# ---- autograd graphs ----

_LINE = re.compile(r":\d+\)$")  # matches ":7)" in "total (a variable of main() in a.py:7)"


class _GraphSize(NamedTuple):
    name: str  # name of the tensor
    nodes: int
    size: int  # bytes
    is_whole: bool  # True if all nodes of the graph were visited


def _graphs(until: float, known: Container[str] = ()) -> dict[str, _GraphSize]:
    """Returns the autograd graphs that the program's own variables keep alive, except graphs in
    KNOWN. The tensor with the graph may be the variable, an attribute of the variable's object, or
    an entry of a dictionary. A graph grows if each step adds to its tensor, and keeps its size if
    each step replaces the tensor."""
    from . import _weight

    found: dict[str, _GraphSize] = {}
    if "torch" not in sys.modules:
        return found
    for name, o in _referrers.named_objects().values():
        parts = [(name, o)]
        if type(o) is dict:
            variable, space, where = name.partition(" (")
            entries = islice(list(o.items()), _GRAPH_ENTRIES)
            parts = [(f"{variable}[{k!r}]{space}{where}", v) for k, v in entries if type(k) is str]
        for part_name, part in parts:
            key, graph = _LINE.sub("", part_name), _weight.Graph()
            if key not in known and graph.add(part, _GRAPH_NODES, until):
                found[key] = _GraphSize(
                    part_name, graph.count, graph.bytes, graph.is_whole
                )
    return found


def _note_new_graphs(found: dict[str, _GraphSize]) -> None:
    """Stores the initial size of graphs that are seen for the first time. Full scans are rare, and
    the first full scan may come before the program creates a tensor with a graph."""
    for key, graph in found.items():
        if key not in _first_graphs and graph.is_whole and len(_first_graphs) < _FIRST_GRAPHS:
            _first_graphs[key] = graph


def _grown_graphs(
    before: dict[str, _GraphSize], now: dict[str, _GraphSize], least: float
) -> list[_Named]:
    """Returns the graphs that gained at least LEAST bytes."""
    found = []
    for key, graph in now.items():
        old = before.get(key) or _first_graphs.get(key)
        added, size = (graph.nodes - old.nodes, graph.size - old.size) if old else (0, 0)
        if not graph.is_whole:  # the growth of an incompletely visited graph is unknown
            added, size = _grown.get(key, (0, 0))
        if added >= _ADDED_MIN and size >= least:
            _grown[key] = added, size
            is_library = _referrers.is_library_name(graph.name)
            found.append(_Named(is_library, graph.name, size, added, "Tensor", True, 0))
    return found


# ---- followed containers ----

# Identifies what is followed: a container by its id, the containers inside it (counted together) by
# the complement of its id, and an array or text by its name.
_Key = Union[int, str]
# The number of entries gained, the key, the name, True if the key stands for the containers inside
# a container, the current length, and an object from which the bytes per entry are estimated.
_Gained = tuple[int, _Key, str, bool, int, Any]


class _Followed:
    __slots__ = (
        "name", "is_nested", "is_variable", "entry_bytes", "first", "length", "highest", "fall",
        "is_fresh", "limit",
    )

    def __init__(
        self, name: str, is_nested: bool, entry_bytes: int, length: int, limit: int
    ) -> None:
        self.name = name
        self.limit = limit  # maximum number of entries, or 0
        # True if this object follows the entries of all containers inside the container
        self.is_nested = is_nested
        # True if the container was found through a variable of the program
        self.is_variable = False
        self.entry_bytes = entry_bytes
        self.first = self.length = self.highest = length
        self.fall = 0  # largest decrease of the length below an earlier maximum
        self.is_fresh = True

    def read(self, length: int) -> None:
        self.length, self.is_fresh = length, True
        self.highest = max(self.highest, length)
        self.fall = max(self.fall, self.highest - length)

    @property
    def grown_bytes(self) -> int:
        return (self.length - self.first) * self.entry_bytes


def _figure_name(name: str, is_nested: bool) -> str:
    """Shortens the name of a container for use as the name of a metric."""
    variable, _, where = name.partition(" (a variable of ")
    if where:
        name = f"{variable} of {where.partition(' in ')[0]}"
    name = clean(name).replace("@", " ") + "[…]" * is_nested
    return name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"


def _children(o: Any, types: frozenset[int]) -> list[Any]:
    """Returns the containers inside O, if O is a list or dictionary of containers."""
    if isinstance(o, list):
        entries = list.__iter__(o)
    elif isinstance(o, dict):
        entries = iter(dict.values(o))
    else:
        return []
    first = list(islice(entries, 1))
    if not _of_types(first, types):
        return []
    return _of_types(first + list(islice(entries, _NESTED_MAX)), types)


class _Follower:
    """Follows the containers that gain the most entries between scans."""

    def __init__(self) -> None:
        self._followed: dict[_Key, _Followed] = {}
        # lengths of the containers, arrays and texts in the program's variables at the last scan
        self._lengths: dict[_Key, int] = {}
        self._inside: set[int] = set()  # ids of the containers inside the program's variables
        # keys of containers that gained entries at the last scan of variables
        self._gained: set[_Key] = set()
        self._sizes: dict[str, int] = {}  # sizes of arrays and texts at the last scan, by name
        # names of arrays and texts whose size has changed since they were first seen
        self._changed: set[str] = set()
        self._limited: set[str] = set()  # names of containers whose maximum length was sent
        self._nameless: set[int] = set()
        self._sent: set[str] = set()

    @property
    def is_following(self) -> bool:
        return bool(self._followed)

    def keeps(self, added: int, o: Any) -> bool:
        """Returns False if container O once lost at least as many entries as it has gained now
        (ADDED). A log that is cleared again and again keeps nothing alive for long."""
        f = self._followed.get(id(o))
        return f is None or added > f.fall

    def scan_variables(self) -> None:
        types, values = _container_types(), _value_types()
        found = _referrers.named_objects()
        _note_limits(o for _, o in found.values())
        before, self._lengths, self._inside = self._lengths, {}, set()
        sizes, self._sizes = self._sizes, {}
        large = _LARGE_MAX
        gained: list[_Gained] = []
        for number, (name, o) in found.items():
            if id(type(o)) in values:
                large -= self._take_value(_LINE.sub("", name), o, large > 0)
            if id(type(o)) not in types:
                continue
            children = _children(o, types)
            self._inside.update(map(id, children))
            for is_nested in (False, True) if children else (False,):
                length = sum(map(len, children)) if is_nested else len(o)
                # a container has two keys: one for its own entries, one for the entries of the
                # containers inside it
                key = ~number if is_nested else number
                self._lengths[key] = length
                f = self._followed.get(key)
                if f is not None:
                    f.read(length)
                    f.is_variable = True
                    f.limit = 0 if is_nested else _limit_of(o)
                elif key in before and length > before[key]:
                    of = children[-1] if is_nested else o
                    gained.append((length - before[key], key, name, is_nested, length, of))
        gained += [
            (length - before[name], name, name, False, length, None)
            for name, length in self._lengths.items()
            if isinstance(name, str)
            and name not in self._followed
            and length > before.get(name, length)
        ]
        self._limit_values(sizes)
        for key in [k for k, f in self._followed.items() if f.is_variable]:
            if key not in self._lengths:
                # the container was freed, or the function with the variable has returned
                del self._followed[key]
        found.clear()
        self._follow_gained(gained)

    def _take_value(self, name: str, o: Any, may_look: bool) -> bool:
        """Adds the bytes of the array or text O to the total for its name. Returns True if O is a
        large array whose written part was measured."""
        from . import _weight

        is_text, address = isinstance(o, (str, bytes, bytearray)), 0
        try:
            size = len(o) if is_text else _weight.size_of(o)
            if may_look and size >= _LARGE_BYTES and not is_text:
                address = _weight.address_of(o)
        except Exception:  # a value without memory of its own, such as a sparse tensor
            return False
        if size < _FOLLOWED_BYTES:
            return False
        written = _memory.written_bytes(address, size) if address else size
        self._lengths[name] = written + self._lengths.get(name, 0)
        self._sizes[name] = size + self._sizes.get(name, 0)
        f = self._followed.get(name)
        if f is not None:
            f.length, f.is_fresh, f.is_variable = self._lengths[name], True, True
        return bool(address)

    def _limit_values(self, before: dict[str, int]) -> None:
        """Sets the maximum length of those followed arrays whose size has not changed since they
        were first seen, because the filled part of an array cannot exceed its size. Arrays whose
        size changes have no maximum. BEFORE holds the sizes at the previous scan."""
        for name, size in self._sizes.items():
            if before.get(name, size) != size:
                self._changed.add(name)
            f = self._followed.get(name)
            if f is not None:
                f.limit = 0 if name in self._changed else size

    def _follow_gained(self, gained: list[_Gained]) -> None:
        from . import _weight

        again, modules = self._gained, _weight.module_numbers()
        self._gained = {g[1] for g in gained}
        for added, key, name, is_nested, length, of in gained:
            if key not in again:
                continue
            # the length of an array or text is in bytes
            entry_bytes = 1 if isinstance(key, str) else _entry_bytes(of, modules)[0]
            if added * entry_bytes >= _FOLLOWED_BYTES and self._make_room(added * entry_bytes):
                if isinstance(key, str):
                    limit = 0 if key in self._changed else self._sizes[key]
                else:
                    limit = 0 if is_nested else _limit_of(of)
                figure = _figure_name(name, is_nested)
                f = _Followed(figure, is_nested, entry_bytes, length, limit)
                f.is_variable = True
                self._followed[key] = f

    def _make_room(self, size: int) -> bool:
        if len(self._followed) < _FOLLOWED_MAX:
            return True
        least = min(self._followed, key=lambda n: self._followed[n].grown_bytes)
        if self._followed[least].grown_bytes >= size:
            return False
        del self._followed[least]
        return True

    def scan_all(
        self,
        found: list[Any],
        lengths: array[int],
        gained: list[tuple[int, Any]],
        ours: list[Any],
    ) -> None:
        """Follows the containers that gained entries. OURS are ebb's own lists, which must not be
        used to name a container."""
        known, present = self._followed, set()
        for o, length in list(
            compress(zip(found, lengths), map(known.__contains__, map(id, found)))
        ):
            known[id(o)].read(length)
            present.add(id(o))
        for number in [n for n, f in known.items() if not f.is_variable and n not in present]:
            del known[number]  # the container was freed
        # FOUND is emptied, because it refers to every container and would therefore appear in the
        # containers' names.
        found.clear()
        known_ids = self._lengths.keys() | self._inside
        self._search([pair for pair in gained if id(pair[1]) not in known_ids], ours)

    def _search(self, gained: list[tuple[int, Any]], ours: list[Any]) -> None:
        until = time.thread_time() + _NAMES_S
        heaviest, searches = _heaviest(gained, _FOLLOWED_BYTES, until), 0
        ours = [*ours, gained, heaviest, *heaviest]
        for size, added, o in heaviest:
            if searches == _NAMES or time.thread_time() > until:
                return
            if id(o) in self._nameless or id(o) in self._followed or not self._make_room(size):
                continue
            searches += 1
            name = _referrers.owner(o, ours, time.monotonic() + _NAMES_S)
            if name and not name.startswith("ebb."):  # skips ebb's own containers
                self._followed[id(o)] = _Followed(
                    _figure_name(name, False), False, size // added, len(o), _limit_of(o)
                )
            elif len(self._nameless) < _GAINED_MAX:
                self._nameless.add(id(o))

    def lines(self) -> str:
        """Returns the metrics read since the last call, as lines of a mark. The metrics of freed
        containers are 0."""
        found: dict[str, list[_Followed]] = {}
        for f in self._followed.values():
            if f.is_fresh:
                found.setdefault(f.name, []).append(f)
                f.is_fresh = False
        names = {f.name for f in self._followed.values()}
        freed = sorted(self._sent - names)
        self._sent = names
        return "".join(self._figures(name, found.get(name, [])) for name in [*freed, *found])

    def _figures(self, name: str, same: list[_Followed]) -> str:
        """Returns the metrics of NAME, each summed over all containers of this name."""
        values = {
            "": sum(f.length for f in same),
            "_bytes": sum(f.length * f.entry_bytes for f in same),
            "_limit": sum(f.limit for f in same) if all(f.limit for f in same) else 0,
        }
        if values["_limit"]:
            self._limited.add(name)
        elif name not in self._limited:
            del values["_limit"]
        return "".join(
            f"\nNAME=container{key}:{name}\nVALUE={value}" for key, value in values.items()
        )


# ---- scans ----

_last: Optional[_Scan] = None
_kept: Optional[_Scan] = None  # the last scan made after memory had grown
_follower = _Follower()
_names: dict[int, str] = {}  # names used in reports, by id of the container
_first_graphs: dict[str, _GraphSize] = {}  # size of each graph when it was first seen
_grown: dict[str, tuple[int, int]] = {}  # nodes and bytes gained by each reported graph
_graphs_rss: Optional[int] = None  # resident memory at the last report by _report_graphs
_is_reported = False  # True once two full scans have been compared
_base: Optional[int] = None  # resident memory at the end of the first step
_base_step: Optional[int] = None
_begun_s = _next_s = _spent_s = _scan_s = _variables_s = _step_s = 0.0
_is_off: Optional[bool] = None
_lock = threading.Lock()


def reset() -> None:
    """Forgets all scans, so that another ebb can attach."""
    global _last, _kept, _follower, _base, _is_off
    global _begun_s, _next_s, _spent_s, _scan_s, _variables_s, _step_s
    with _lock:
        _last = _kept = _base = _is_off = None
        _follower = _Follower()
        _begun_s = _next_s = _spent_s = _scan_s = _variables_s = _step_s = 0.0
        for found in (_names, _first_graphs, _grown, _limits, _caches):
            found.clear()


def _may_scan() -> bool:
    """Returns True if containers can be scanned, which requires CPython with the GIL enabled."""
    if os.environ.get("EBB_KEEPERS", "1") == "0" or sys.implementation.name != "cpython":
        return False
    gil = getattr(sys, "_is_gil_enabled", None)
    return gil is None or bool(gil())


class _Named(NamedTuple):
    """The values of a KIND=kept mark, which names a container that keeps growing."""

    is_library: bool
    name: str
    size: int  # bytes
    added: int
    kind: str
    is_graph: bool
    limit: int  # maximum number of entries, or 0


def _named_containers(gained: list[tuple[int, Any]], least: float) -> list[_Named]:
    from . import _weight

    found = _heaviest(gained, least, time.thread_time() + _NAMES_S)[:_NAMED_MAX]
    until = time.monotonic() + _WALL_S
    ours: list[Any] = [gained, found, *gained, *found]
    named, modules = [], _weight.module_numbers()
    for size, added, o in found:
        name = _names.get(id(o)) or _referrers.owner(o, ours, until)
        if name:
            _names[id(o)] = name
            is_library = _referrers.is_library_name(name)
            is_graph = _entry_bytes(o, modules)[1] > size / added / 2
            kind = type(o).__name__
            named.append(_Named(is_library, name, size, added, kind, is_graph, _limit_of(o)))
    return named


def _send_kept(
    step: Optional[int], since: Optional[int], grown: int, named: list[_Named], had_names: bool
) -> None:
    w = figures_wire()
    if step is not None or had_names:
        # a mark without a name withdraws the previous report
        w.mark("kept", True, step=step, since=since)
    for one in sorted(named, key=lambda one: one.is_library)[:_NAMED_MAX]:
        w.mark(
            "kept",
            True,
            step=step,
            since=since,
            name=one.name,
            type=one.kind,
            added=one.added,
            bytes=min(one.size, grown),
            library=1 if one.is_library else None,
            graph=1 if one.is_graph else None,
            limit=one.limit or None,
        )


def _report_kept(
    step: Optional[int], rss: int, before: _Scan, now: _Scan, gained: list[tuple[int, Any]]
) -> None:
    global _graphs_rss, _is_reported
    _graphs_rss, _is_reported = None, True
    least, had_names = max(_KEPT_BYTES, _KEPT_SHARE * (rss - before.rss)), bool(_names or _grown)
    named = _named_containers(gained, least) + _grown_graphs(before.graphs, now.graphs, least)
    _send_kept(step, before.step, rss - before.rss, named, had_names)


def _report_graphs(step: Optional[int], rss: int, base: int) -> None:
    """Reports graphs that have grown since they were first seen. No full scan is needed for this,
    so ebb can explain growth in short runs. Once two full scans have been compared, reports are
    based on the scans instead."""
    global _graphs_rss
    found = _graphs(time.thread_time() + _NAMES_S)
    _note_new_graphs(found)
    named = _grown_graphs({}, found, max(_KEPT_BYTES, _KEPT_SHARE * (rss - base)))
    is_due = _graphs_rss is None or rss - base >= _AGAIN * (_graphs_rss - base)
    if (named and is_due) or (not named and _graphs_rss is not None):
        _send_kept(step, _base_step, rss - base, named, _graphs_rss is not None)
        _graphs_rss = rss if named else None


def _scan(step: Optional[int], rss: int, is_grown: bool) -> None:
    """Scans all containers. IS_GROWN is True if memory has grown enough for a report."""
    global _last, _kept, _scan_s
    before, _last = _last, None
    if sys.getallocatedblocks() > _OBJECTS_MAX:
        return
    begun = time.thread_time()
    found = _containers()
    lengths = array("Q", map(len, found))
    now = _Scan(step, rss, found, lengths)
    gained = before.gained(found, lengths, 1) if before else []
    more: list[tuple[int, Any]] = []
    if is_grown and _kept is not None:
        more = [g for g in _kept.gained(found, lengths, _ADDED_MIN) if _follower.keeps(*g)]
    _scan_s = time.thread_time() - begun
    _follower.scan_all(found, lengths, gained, [gained, *gained, more, *more])
    del gained
    if is_grown:
        now.graphs = _graphs(time.thread_time() + _NAMES_S)
        if _kept is not None and (step is None or step != _kept.step):
            _report_kept(step, rss, _kept, now, more)
        _kept = now
    _last = now


def _is_time(ran_s: float, is_grown: bool) -> bool:
    """Returns True if the time limits allow a full scan now."""
    spent_s = _spent_s + (_scan_s or sys.getallocatedblocks() * _BLOCK_S)
    if is_grown and spent_s <= _BUDGET_S and spent_s <= ran_s * _YOUNG_SHARE:
        return True
    return spent_s <= ran_s * _SHARE


def _scan_if_due(step: Optional[int], may_hold_all: bool) -> None:
    global _next_s, _is_off, _base, _base_step, _begun_s, _spent_s, _variables_s
    now = time.monotonic()
    if _is_off is None:
        _is_off, _begun_s = not _may_scan(), now
    rss = None if _is_off or not figures_wire().is_there else _memory.rss_bytes()
    if rss is None:
        _next_s = now + _INTERVAL_S
        return
    if _base is None:
        _base, _base_step = rss, step
    grown = max(_GROWN_BYTES, _GROWN_SHARE * _base)
    if _kept is not None:
        grown = max(grown, _AGAIN * (_kept.rss - _base))
    is_grown = rss >= _base + grown
    begun = time.thread_time()
    try:
        # the first scan always takes place, because growth is measured relative to it
        if rss >= _base + _WORTH_BYTES or _variables_s == 0 or _follower.is_following:
            _follower.scan_variables()
            if may_hold_all and is_grown and not _is_reported:
                _report_graphs(step, rss, _base)
            elif may_hold_all:
                _note_new_graphs(_graphs(time.thread_time() + _NAMES_S, _first_graphs))
            _variables_s = time.thread_time() - begun
        if may_hold_all and rss >= _base + _WORTH_BYTES and _is_time(now - _begun_s, is_grown):
            full = time.thread_time()
            _scan(step, rss, is_grown)
            _spent_s += time.thread_time() - full
        lines = _follower.lines()
        if lines:
            figures_wire().send_figures("KIND=series" + lines)
    except Exception:  # a diagnosis must never break the job
        _is_off = True
    _next_s = now + max(_INTERVAL_S, _variables_s / _VARIABLES_SHARE)


def at_step(step: Optional[int] = None) -> None:
    """Scans if memory has grown and the time limits allow it. Called at the end of a step."""
    global _step_s
    _step_s = time.monotonic()
    if _step_s >= _next_s and _lock.acquire(False):
        try:
            _scan_if_due(step, True)
        finally:
            _lock.release()


def without_steps() -> None:
    """Like at_step, but called by a thread if no step has ended for some time. Scans only variables
    of the program, not all objects: a list of all objects would refer to tuples that other threads
    are still creating, and Python cannot resize a tuple that has other references (SystemError in
    _PyTuple_Resize)."""
    now = time.monotonic()
    if now >= _next_s and now - _step_s > _IDLE_STEPS_S and _lock.acquire(False):
        try:
            _scan_if_due(None, False)
        finally:
            _lock.release()
