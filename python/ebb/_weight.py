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
    base = getattr(o, "base", None) if type(o).__name__ == "ndarray" else None
    if base is not None:
        return int(o.nbytes)
    from ._census import sizeof

    return sizeof(o)


def _tensor_size(o: Any, torch: Any) -> int:
    from ._census import storage_bytes

    with torch._C.DisableTorchFunctionSubclass():
        return storage_bytes(o, set()) if o.device.type == "cpu" else 0


def module_numbers() -> set[int]:
    return {id(m.__dict__) for m in list(sys.modules.values()) if type(m) is ModuleType}


def of_last(objects: Sequence[Any], modules: set[int]) -> int:
    """Bytes of the last of OBJECTS and of what it refers to and those before it do not, up to some
    parts: what they share is no part of what another one of them would add."""
    seen: set[int] = set()
    total = 0
    for o in objects:
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
