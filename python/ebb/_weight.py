"""What an object weighs with all that it alone seems to hold: an estimate, by few of its parts."""

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
    """What many share: the program itself, not what it works on."""
    t = type(o)
    return t in _ROOTS or issubclass(t, type) or id(o) in modules


def _size(o: Any) -> int:
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "Tensor") and issubclass(type(o), torch.Tensor):
        return _tensor_size(o, torch)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and issubclass(type(o), numpy.ndarray):
        return int(numpy.ndarray.nbytes.__get__(o))
    from ._census import sizeof

    return sizeof(o)


def _tensor_size(o: Any, torch: Any) -> int:
    from ._census import storage_bytes

    with torch._C.DisableTorchFunctionSubclass():
        return storage_bytes(o, set()) if o.device.type == "cpu" else 0


def module_numbers() -> set[int]:
    return {id(m.__dict__) for m in list(sys.modules.values()) if type(m) is ModuleType}


def _add(o: Any, seen: set[int], modules: set[int]) -> int:
    """Bytes of O and of what it refers to, up to some parts, of which none was SEEN."""
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
    """What one of OBJECTS, entries of CONTAINER, adds on the mean, but for the first: what all of
    them share is no part of what another would add."""
    seen = {id(container)}
    weights = [_add(o, seen, modules) for o in objects]
    return sum(weights[1:]) // max(len(weights) - 1, 1)
