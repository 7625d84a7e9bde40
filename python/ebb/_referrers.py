"""Finds the references to an object through gc, as a short chain of names and in bounded time."""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
import time
import weakref
from collections import OrderedDict, deque
from dis import EXTENDED_ARG, opmap
from functools import lru_cache
from types import (
    CellType, CodeType, FrameType, FunctionType, MemberDescriptorType, ModuleType,
)
from typing import Any, Iterator, Optional

_DEPTH_MAX = 12
_OWNER_DEPTH = 6
_STDLIB = os.path.dirname(inspect.__file__) + os.sep
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SCAN_MAX = 200_000  # maximum number of entries of a container that are searched for a name


# ---- variables of running functions, which gc does not report ----


def _read_locals(f: FrameType) -> dict[str, Any]:
    found = f.f_locals
    copy = dict(found)
    # Before Python 3.13, f_locals is a dict that the frame keeps alive, together with all values in
    # it. locals() in the job returns the same dict, so the dict is cleared only if nothing else
    # refers to it.
    if type(found) is dict and sys.getrefcount(found) <= 3:
        found.clear()
    return copy


def is_our_frame(f: FrameType) -> bool:
    return f.f_code.co_filename.startswith(_OURS)


def variables(f: FrameType) -> list[Any]:
    """Returns the objects to which the variables of a running function refer."""
    return list(_read_locals(f).values())


def running(kind: type) -> list[Any]:
    """Returns the objects of class KIND to which variables of running functions refer."""
    found: dict[int, Any] = {}
    f: Optional[FrameType] = None
    frames = list(sys._current_frames().values())
    while frames:
        f = frames.pop()
        while f is not None:
            if f.f_code.co_flags & inspect.CO_OPTIMIZED and not is_our_frame(f):
                found.update((id(o), o) for o in variables(f) if issubclass(type(o), kind))
            f = f.f_back
    return list(found.values())


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
        # The frame of this function is among these frames. A frame whose variables refer to the
        # frame itself outlives its call, and keeps the callers' variables alive until the next
        # garbage collection.
        frames.clear()
        f = None


# ---- attributes of objects ----

# Python 3.11 and 3.12 store the attributes of an object without a dictionary, until someone reads
# the object's __dict__. From then on, the program's own code finds the attributes more slowly.
_HAS_INLINE = (3, 11) <= sys.version_info[:2] <= (3, 12)
_MANAGED_DICT = 1 << 4  # flag of classes whose objects may have no dictionary
_PLAIN_BYTES = object.__basicsize__ + 8  # object size without slots and without a base class in C
# names of the attributes that the methods in the body of a class assign, by the id of the class
_names: dict[int, tuple[weakref.ref[type], frozenset[str]]] = {}
_WRAPPED_MAX = 16  # maximum number of functions followed through __wrapped__, which may be circular


def _assigned(code: CodeType) -> Iterator[str]:
    """Yields the names of the attributes that CODE assigns."""
    argument, code_bytes = 0, code.co_code
    for operation, low in zip(code_bytes[::2], code_bytes[1::2]):
        argument = argument << 8 | low
        if operation == opmap["STORE_ATTR"]:
            yield code.co_names[argument]
        if operation != EXTENDED_ARG:
            argument = 0


# These read a class without calling code of its metaclass.
_mro_of = type.__dict__["__mro__"].__get__
_body_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_size_of = type.__dict__["__basicsize__"].__get__


def _is_safe(t: type, name: str) -> bool:
    """Returns True if reading the attribute NAME of an object of class T runs no code of the
    job."""
    for base in _mro_of(t):
        if name in _body_of(base):
            found = type(_body_of(base)[name])
            return found in (FunctionType, MemberDescriptorType) or not any(
                "__get__" in _body_of(b) for b in _mro_of(found)
            )
    return True


def _names_in(t: type) -> frozenset[str]:
    """Returns the names of the attributes that the methods in the body of class T assign."""
    known = _names.get(id(t))
    if known is not None and known[0]() is t:
        return known[1]
    names: set[str] = set()
    for f in list(_body_of(t).values()):
        for _ in range(_WRAPPED_MAX):
            if type(f) is not FunctionType:
                break
            names.update(_assigned(f.__code__))
            try:
                f = object.__getattribute__(f, "__wrapped__")
            except AttributeError:
                break
    number = id(t)
    _names[number] = weakref.ref(t, lambda _: _names.pop(number, None)), frozenset(names)
    return _names[number][1]


def _inline_attributes(o: Any) -> Optional[dict[str, Any]]:
    """Returns the attributes of an object without a dictionary. Returns None if the object has a
    dictionary, or if the name of one of its attributes is unknown."""
    t = type(o)
    if not _HAS_INLINE or not _flags_of(t) & _MANAGED_DICT or _size_of(t) > _PLAIN_BYTES:
        return None
    parts = [value for value in gc.get_referents(o) if value is not t]
    if len(parts) == 1 and type(parts[0]) is dict:
        return None  # most likely the dictionary of the attributes
    values, found = set(map(id, parts)), {}
    for name in frozenset().union(*map(_names_in, _mro_of(t)[:-1])):
        if not _is_safe(t, name):
            continue
        try:
            value = object.__getattribute__(o, name)
        except Exception:
            continue
        if id(value) in values:
            found[name] = value
    return found if values == set(map(id, found.values())) else None


def _dictionary(o: Any) -> Optional[dict[Any, Any]]:
    try:
        found = object.__getattribute__(o, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def attributes(o: Any) -> dict[str, Any]:
    found = _inline_attributes(o)
    return dict(_dictionary(o) or {}) if found is None else found


# ---- one link of the chain ----


def _key_in(d: dict[Any, Any], o: Any) -> Any:
    for i, (key, value) in enumerate(list(dict.items(d))):
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
    key = _key_in(attributes(r), o)
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
    """Returns the part of a name that describes R's reference to O, for example "[3]". R is neither
    a dict nor the end of the chain."""
    if type(r) in (list, tuple, deque):
        return _index(list(r), o)
    if type(r) in (set, frozenset):
        return "{…}"
    if isinstance(r, dict):
        return _subscript(_key_in(r, o))
    return _attribute(r, o)


def _end(r: Any) -> Optional[str]:
    """Returns the name of R if R is a module, a class, a function or the frame of a running
    function; otherwise None."""
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
    """Returns the rank of R, a holder of an object. The better R identifies the object, the lower
    its rank. The chain continues with the holder that has the lowest rank."""
    t = type(r)
    if t is dict:
        return 0 if id(r) in modules else 2
    if t in (list, tuple, deque):
        return 3
    return 4 if t.__module__ == "builtins" else 1


# ---- the chain ----


def _referrers_of(o: Any, skip: set[int]) -> list[Any]:
    """Returns the referrers of O except frames of running functions, because _in_frames finds those
    together with the names of their variables."""
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
    return f"<{t.__module__}.{t.__qualname__}>{names}" if names else "no object that gc tracks"


def _module_names() -> dict[int, str]:
    """Returns the names of all modules, by id of the dictionary of the module's variables."""
    named = [(n, m) for n, m in list(sys.modules.items()) if type(m) is ModuleType]
    # if a module has two names, the first one is used
    return {id(m.__dict__): n for n, m in reversed(named)}


def _step(r: Any, o: Any, skip: set[int]) -> tuple[str, Any]:
    """Returns two values. The first is the part of a name that describes R's reference to O, such
    as ".cache" or "[3]". The second is the holder of O: R, or the object whose attributes are in
    R."""
    if type(r) is not dict:
        return "" if type(r) is CellType else _way(r, o), r
    key, whose = _key_in(r, o), _owner_of(r, skip)
    if whose is None:
        return _subscript(key), r
    skip.add(id(whose))
    return f".{key}", whose


def chain(o: Any, ours: list[Any], until: float) -> str:
    """Returns a name for O such as "__main__.cache['seen'][3]". OURS are containers of ebb itself,
    which are skipped."""
    skip = {id(x) for x in ours} | {id(ours), id(o)}
    modules = _module_names()
    names, at = "", o
    for _ in range(_DEPTH_MAX):
        if time.monotonic() > until:
            return f"…{names} (the search ran out of time)"
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
    """Returns the object whose attributes are in the dictionary D."""
    for r in _referrers_of(d, skip):
        if type(r) not in (dict, list, tuple, OrderedDict):
            if _inline_attributes(r) is None and _dictionary(r) is d:
                return r
    return None


# ---- owners of containers ----

# in names from gc, an attribute of a class looks like the key of a dictionary
_CLASS_KEY = re.compile(r"^\['(\w+)'\]")
_LIBRARIES = ("site-packages", "dist-packages")


def is_program_s(m: Any) -> bool:
    """Returns True if the module is one of the program's own files, not of a library."""
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


_VARIABLE_FILE = re.compile(r" \(a variable of .* in (.*):\d+\)$")
_OWNER = re.compile(r".* of ([\w.]+)[^ ]*$|(?:class |function )?([\w.]+)")


def _class_name(t: type) -> str:
    """Returns the name of a class as the program would write it."""
    return t.__qualname__ if t.__module__ == "__main__" else f"{t.__module__}.{t.__qualname__}"


def is_library_name(name: str) -> bool:
    """Returns True if NAME, a result of owner(), belongs to an installed or standard module."""
    variable = _VARIABLE_FILE.search(name)
    if variable:
        path = variable[1]
        return any(p in path for p in _LIBRARIES) or path.startswith((_STDLIB, _OURS))
    found = _OWNER.match(name)
    parts = (found[1] or found[2]).split(".") if found else []
    main = getattr(sys.modules.get("__main__"), parts[0], None) if parts else None
    # the name has no module, because it belongs to __main__
    if main is not None and type(main) is not ModuleType:
        return False
    for count in range(len(parts), 0, -1):
        m = sys.modules.get(".".join(parts[:count]))
        if m is not None:
            return not is_program_s(m)
    return False


CACHE_TYPE = type(lru_cache(abs))
_CACHE_MAX = 50_000  # larger caches are skipped, because gc would list all their entries


def cache_dict(cache: Any) -> Optional[dict[Any, Any]]:
    """Returns the dictionary that contains the entries of an lru_cache, or None if the cache
    has too many entries."""
    if type(cache) is not CACHE_TYPE:
        return None
    info = CACHE_TYPE.cache_info(cache)
    if info.maxsize and info.currsize > _CACHE_MAX:
        return None
    own = object.__getattribute__(cache, "__dict__")
    # gc returns the entries before the dictionary, and entries may be dictionaries too
    found = [d for d in gc.get_referents(cache) if type(d) is dict and d is not own]
    return found[-1] if found else None


def _lru_cache_of(r: Any) -> Optional[str]:
    if type(r).__name__ != "_lru_cache_wrapper":
        return None
    f = object.__getattribute__(r, "__dict__").get("__wrapped__")
    return f"lru_cache of {f.__module__}.{f.__qualname__}" if type(f) is FunctionType else None


def _of_closure(f: Any, at: Any, names: str) -> Optional[str]:
    """NAMES starts with an index into AT, the closure of F. Returns NAMES with the name of the
    closure variable in place of the index.
    """
    if type(f) is not FunctionType or at is not f.__closure__ or not names.startswith("["):
        return None
    index, _, rest = names[1:].partition("]")
    if not index.isdecimal():
        return None
    return f"{f.__code__.co_freevars[int(index)]}{rest} of {f.__module__}.{f.__qualname__}"


_ATTRIBUTES_MAX = 4000  # maximum number of attributes visited, in total over all objects
_ATTRIBUTES_DEPTH = 3
_NO_OBJECTS = (
    ModuleType, FunctionType, type(len), type(None), str, bytes, int, float, list, dict,
    OrderedDict,
)


def _program_variables() -> list[tuple[str, Any]]:
    """Returns the variables of running functions in all threads, of the program's modules, and of
    its classes."""
    found: list[tuple[str, Any]] = []
    frames = list(sys._current_frames().values())
    f: Optional[FrameType] = None
    while frames:
        f = frames.pop()
        while f is not None:
            code = f.f_code
            if code.co_flags & inspect.CO_OPTIMIZED and not is_our_frame(f):
                where = f" (a variable of {code.co_name}() in {code.co_filename}:{f.f_lineno})"
                found += [(name + where, value) for name, value in _read_locals(f).items()]
            f = f.f_back
    for m in [m for m in list(sys.modules.values()) if is_program_s(m)]:
        for name, value in list(m.__dict__.items()):
            if not issubclass(type(value), type):
                found.append((f"{m.__name__}.{name}", value))
            elif value.__module__ == m.__name__:
                prefix = _class_name(value) + "."
                parts = type.__dict__["__dict__"].__get__(value)
                found += [(prefix + key, part) for key, part in list(parts.items())]
    return found


def named_objects() -> dict[int, tuple[str, Any]]:
    """Returns the objects to which the program's own variables refer, and the attributes of these
    objects, as (name, object) by id. These objects keep most memory alive, and can be found without
    visiting all objects.
    """
    found: dict[int, tuple[str, Any]] = {}
    todo, left = _program_variables(), _ATTRIBUTES_MAX
    for _ in range(_ATTRIBUTES_DEPTH):
        parts: list[tuple[str, Any]] = []
        for name, value in todo:
            if id(value) in found:
                continue
            found[id(value)] = (name, value)
            t = type(value)
            if t in _NO_OBJECTS or issubclass(t, type) or left <= 0:
                continue
            cache = _lru_cache_of(value)
            if cache:
                parts += [(cache, d) for d in [cache_dict(value)] if d is not None]
                continue
            has = attributes(value)
            left -= len(has)
            variable, space, where = name.partition(" ")
            module = t.__module__ if type(t.__module__) is str else ""
            # a class of the program is named without its module
            if is_program_s(sys.modules.get(module)):
                variable, space, where = _class_name(t), "", ""
            parts += [
                (f"{variable}.{key}{space}{where}", part)
                for key, part in has.items()
                if type(key) is str
            ]
        todo = parts
    return found


def owner(o: Any, ours: list[Any], until: float) -> Optional[str]:
    """Names the container O after the nearest object that both refers to O and is known to the
    user: "Features.cache", "__main__.seen", "losses (a variable of train() in …)". Returns None if
    there is none."""
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
            return _class_name(r) + _CLASS_KEY.sub(r".\1", names)
        end = _end(r)
        if end:
            return end + names
        skip.add(id(r))
        if id(r) in modules:
            return f"{modules[id(r)]}.{_key_in(r, at)}{names}"
        way, at = _step(r, at, skip)
        names = way + names
        if isinstance(at, type):
            return _class_name(at) + names
        is_known = is_program_s(sys.modules.get(type(at).__module__))
        if is_known and names.startswith(".") and not names.startswith(".…"):
            return _class_name(type(at)) + names
    return None
