"""Estimates the bytes of an object with everything that only it refers to, from a few of its
parts."""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Sequence

_PARTS_MAX = 100
_ROOTS = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType)


def _is_root(o: Any, modules: set[int]) -> bool:
    """Returns True if O is part of the program itself, which many objects share, and not of its
    data."""
    t = type(o)
    return t in _ROOTS or issubclass(t, type) or id(o) in modules


def _size(o: Any) -> int:
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "Tensor") and issubclass(type(o), torch.Tensor):
        return _tensor_size(o, torch)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and issubclass(type(o), numpy.ndarray):
        return int(numpy.ndarray.nbytes.__get__(o))
    if type(o).__name__ == "mmap" and type(o).__module__ == "mmap":
        try:
            return len(o)
        except ValueError:  # closed
            return 0
    from ._census import sizeof

    return sizeof(o)


def _tensor_size(o: Any, torch: Any) -> int:
    from ._census import storage_bytes

    with torch._C.DisableTorchFunctionSubclass():
        return storage_bytes(o, set()) if o.device.type == "cpu" else 0


def module_numbers() -> set[int]:
    return {id(m.__dict__) for m in list(sys.modules.values()) if type(m) is ModuleType}


def _add(o: Any, seen: set[int], modules: set[int]) -> int:
    """Returns the bytes of O and of the objects it refers to that were not SEEN, up to a limit of
    parts."""
    seen.add(id(o))
    todo, total, left = deque([o]), 0, _PARTS_MAX
    while todo and left:
        one, left = todo.popleft(), left - 1
        if _is_root(one, modules):
            continue
        total += _size(one)
        new = [part for part in gc.get_referents(one) if id(part) not in seen]
        seen.update(map(id, new))
        todo.extend(islice(new, _PARTS_MAX))
    return total


def of_one(objects: Sequence[Any], container: Any, modules: set[int]) -> int:
    """Returns the mean bytes that one of OBJECTS, entries of CONTAINER, adds. The first object
    is not counted, because it includes memory that all of them share."""
    seen = {id(container)}
    weights = [_add(o, seen, modules) for o in objects]
    return sum(weights[1:]) // max(len(weights) - 1, 1)
