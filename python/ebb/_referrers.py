"""Who holds an object: a short chain of names, found through gc, in bounded time."""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
import time
from collections import deque
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, Optional

_DEPTH_MAX = 12
_OWNER_DEPTH = 6
_STDLIB = os.path.dirname(inspect.__file__) + os.sep
_OURS = os.path.dirname(__file__) + os.sep
_SCAN_MAX = 200_000  # entries of one container that are looked through for a name
_SELF = ("ebb._referrers", "ebb._census", "ebb._keepers", "ebb._control", "ebb.torch")


# ---- variables of functions that run, which gc does not know ----


def _read_locals(f: FrameType) -> dict[str, Any]:
    found = f.f_locals
    copy = dict(found)
    # Before 3.13 this is a copy that the frame keeps, and with it all that it refers to. It is
    # also what locals() returns: not emptied where anybody else has it.
    if type(found) is dict and sys.getrefcount(found) <= 3:
        found.clear()
    return copy


def is_our_frame(f: FrameType) -> bool:
    return f.f_globals.get("__name__") in _SELF


def variables(f: FrameType) -> list[Any]:
    """What the variables of a function that runs refer to."""
    return list(_read_locals(f).values())


def _in_locals(f: FrameType, o: Any) -> Optional[str]:
    return next((key for key, value in _read_locals(f).items() if value is o), None)


def _in_frames(o: Any) -> Optional[tuple[str, str]]:
    frames = list(sys._current_frames().values())
    f: Optional[FrameType] = None
    try:
        while frames:
            f = frames.pop()
            while f is not None:
                code = f.f_code
                if code.co_flags & inspect.CO_OPTIMIZED and not is_our_frame(f):
                    name = _in_locals(f, o)
                    if name:
                        return name, f"{code.co_name}() in {code.co_filename}:{f.f_lineno}"
                f = f.f_back
        return None
    finally:
        # One of them is this function's own. A frame that refers to itself outlives its call, and
        # with it all that the callers' variables hold: objects of the job, until gc comes by.
        frames.clear()
        f = None


# ---- one step of the way ----


def _key_in(d: dict[Any, Any], o: Any) -> Any:
    for i, (key, value) in enumerate(list(d.items())):
        if value is o:
            return key
        if i > _SCAN_MAX:
            break
    return None


def _subscript(key: Any) -> str:
    if isinstance(key, str):
        return f"[{key[:60]!r}]"
    return f"[{key}]" if type(key) in (int, float, bool, tuple) else "[…]"


def _index(items: Any, o: Any) -> str:
    for i, value in enumerate(items):
        if value is o:
            return f"[{i}]"
        if i > _SCAN_MAX:
            break
    return "[…]"


def _attribute(r: Any, o: Any) -> str:
    try:
        d = object.__getattribute__(r, "__dict__")
    except Exception:
        d = None
    key = _key_in(d, o) if type(d) is dict else None
    if key is not None:
        return f".{key}"
    for base in type(r).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                if object.__getattribute__(r, name) is o:
                    return f".{name}"
            except Exception:
                continue
    return ".…"


def _way(r: Any, o: Any) -> str:
    """How R, which is neither a dict nor an end of the chain, names O."""
    if type(r) in (list, tuple, deque):
        return _index(list(r), o)
    if type(r) in (set, frozenset):
        return "{…}"
    return _attribute(r, o)


def _end(r: Any) -> Optional[str]:
    """A holder that has a name of its own."""
    if type(r) is ModuleType:
        return r.__name__
    if isinstance(r, type):
        return f"class {r.__module__}.{r.__qualname__}: "
    if type(r) is FunctionType:
        return f"function {r.__module__}.{r.__qualname__}: "
    if type(r) is FrameType:
        return f"a variable of {r.f_code.co_name}() in {r.f_code.co_filename}:{r.f_lineno} "
    return None


def _rank(r: Any, modules: dict[int, str]) -> int:
    """How telling it is to be held by such a one: the least goes on."""
    t = type(r)
    if t is dict:
        return 0 if id(r) in modules else 2
    if t in (list, tuple, deque):
        return 3
    return 4 if t.__module__ == "builtins" else 1


# ---- the chain ----


def _referrers_of(o: Any, skip: set[int]) -> list[Any]:
    """Without functions that run: _in_frames finds those with the names of their variables."""
    return [r for r in gc.get_referrers(o) if id(r) not in skip and type(r) is not FrameType]


def _holder(o: Any, skip: set[int], modules: dict[int, str]) -> Any:
    best, best_rank = None, 9
    for r in _referrers_of(o, skip):
        if type(r).__name__ in ("list_iterator", "tuple_iterator"):
            continue
        rank = _rank(r, modules)
        if rank < best_rank:
            best, best_rank = r, rank
    return best


def _root(o: Any, names: str) -> str:
    variable = _in_frames(o)
    if variable:
        return f"{variable[0]}{names} (a variable of {variable[1]})"
    t = type(o)
    return f"<{t.__module__}.{t.__qualname__}>{names}" if names else "nothing that gc knows of"


def _module_names() -> dict[int, str]:
    """The name of each module by the number of its variables."""
    named = [(n, m) for n, m in list(sys.modules.items()) if type(m) is ModuleType]
    return {id(m.__dict__): n for n, m in reversed(named)}  # of two names the first


def _step(r: Any, o: Any, skip: set[int]) -> tuple[str, Any]:
    """How R names O, and who holds it: R, or the one whose attributes R are."""
    if type(r) is not dict:
        return "" if type(r) is CellType else _way(r, o), r
    key, whose = _key_in(r, o), _owner_of(r, skip)
    if whose is None:
        return _subscript(key), r
    skip.add(id(whose))
    return f".{key}", whose


def chain(o: Any, ours: list[Any], until: float) -> str:
    """Like "__main__.cache['seen'][3]". OURS are the containers of whoever asks."""
    skip = {id(x) for x in ours} | {id(ours), id(o)}
    modules = _module_names()
    names, at = "", o
    for _ in range(_DEPTH_MAX):
        if time.monotonic() > until:
            return f"…{names} (there was no time to look further)"
        r = _holder(at, skip, modules)
        if r is None:
            return _root(at, names)
        end = _end(r)
        if end:
            return end + names
        skip.add(id(r))
        if id(r) in modules:
            return f"{modules[id(r)]}.{_key_in(r, at)}{names}"
        way, at = _step(r, at, skip)
        names = way + names
        end = _end(at)
        if end:
            return end + names
    return f"…{names}"


def _owner_of(d: dict[Any, Any], skip: set[int]) -> Any:
    """Whose attributes D are."""
    for r in _referrers_of(d, skip):
        if type(r) not in (dict, list, tuple):
            try:
                if object.__getattribute__(r, "__dict__") is d:
                    return r
            except Exception:
                continue
    return None


# ---- whose a container is ----

_CLASS_KEY = re.compile(r"^\['(\w+)'\]")  # the attributes of a class are a dictionary to gc
_LIBRARIES = ("site-packages", "dist-packages")


def is_program_s(m: Any) -> bool:
    """Is the module one of the program's own files, and so one that its reader knows?"""
    if type(m) is not ModuleType:
        return False
    if m.__name__ == "__main__":
        return True
    path = m.__dict__.get("__file__")
    return (
        type(path) is str
        and not any(p in path for p in _LIBRARIES)
        and not path.startswith((_STDLIB, _OURS))
    )


def _lru_cache_of(r: Any) -> Optional[str]:
    if type(r).__name__ != "_lru_cache_wrapper":
        return None
    f = object.__getattribute__(r, "__dict__").get("__wrapped__")
    return f"lru_cache of {f.__module__}.{f.__qualname__}" if type(f) is FunctionType else None


def _of_closure(f: Any, at: Any, names: str) -> Optional[str]:
    """The variable of F's closure AT, whose names begin with its index there."""
    if type(f) is not FunctionType or at is not f.__closure__ or not names.startswith("["):
        return None
    index, _, rest = names[1:].partition("]")
    if not index.isdecimal():
        return None
    return f"{f.__code__.co_freevars[int(index)]}{rest} of {f.__module__}.{f.__qualname__}"


def owner(o: Any, ours: list[Any], until: float) -> Optional[str]:
    """Whose the container O is, by the nearest holder that the program's reader knows: "cache of a
    __main__.Features", "__main__.seen", "losses (a variable of train() in …)". None: not found."""
    skip = {id(x) for x in ours} | {id(ours), id(o)}
    modules = _module_names()
    names, at = "", o
    for _ in range(_OWNER_DEPTH):
        if time.monotonic() > until:
            return None
        r = _holder(at, skip, modules)
        if r is None:
            variable = _in_frames(at)
            return f"{variable[0]}{names} (a variable of {variable[1]})" if variable else None
        known = _lru_cache_of(r) or _of_closure(r, at, names)
        if known:
            return known
        if isinstance(r, type):
            return f"{r.__module__}.{r.__qualname__}" + _CLASS_KEY.sub(r".\1", names)
        end = _end(r)
        if end:
            return end + names
        skip.add(id(r))
        if id(r) in modules:
            return f"{modules[id(r)]}.{_key_in(r, at)}{names}"
        way, at = _step(r, at, skip)
        names = way + names
        if isinstance(at, type):
            return f"{at.__module__}.{at.__qualname__}{names}"
        is_known = is_program_s(sys.modules.get(type(at).__module__))
        if is_known and names.startswith(".") and not names.startswith(".…"):
            return f"{names[1:]} of a {type(at).__module__}.{type(at).__qualname__}"
    return None
