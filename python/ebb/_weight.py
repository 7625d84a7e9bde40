"""Estimates the bytes of an object together with everything that only this object refers to.
Measures only a few of the object's parts. Also estimates the bytes of the autograd graph behind a
tensor."""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from functools import lru_cache
from itertools import islice, repeat
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Optional, Sequence

_PARTS_MAX = 100
_NODES_MAX = 1000  # maximum number of nodes visited in the autograd graph behind one object
_ROOTS = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType)


def _is_root(o: Any, modules: set[int]) -> bool:
    """Returns True if O is a module, class or function: a part of the program, not of its data."""
    t = type(o)
    return t in _ROOTS or issubclass(t, type) or id(o) in modules


def size_of(o: Any) -> int:
    """Returns the bytes of O, excluding the objects to which it refers."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "Tensor") and issubclass(type(o), torch.Tensor):
        return _tensor_size(o, torch)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and issubclass(type(o), numpy.ndarray):
        return int(numpy.ndarray.nbytes.__get__(o))
    if type(o).__name__ == "mmap" and type(o).__module__ == "mmap":
        try:
            return len(o)
        except ValueError:  # O is closed
            return 0
    from ._census import sizeof

    return sizeof(o)


def _without_job_code(torch: Any) -> Any:
    """Returns a context in which torch does not call code of the job, such as torch modes and
    tensor subclasses."""
    found = getattr(torch._C, "DisableTorchFunction", torch._C.DisableTorchFunctionSubclass)
    return found()


def address_of(o: Any) -> int:
    """Returns the address of the elements of O, an array or a tensor on the host, or 0 if they are
    not contiguous."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(o) is torch.Tensor:
        with _without_job_code(torch):
            return int(o.untyped_storage().data_ptr())
    return int(o.__array_interface__["data"][0]) if o.flags.forc else 0


def _tensor_size(o: Any, torch: Any) -> int:
    from ._census import storage_bytes

    with _without_job_code(torch):
        return storage_bytes(o, set()) if o.device.type == "cpu" else 0


class Graph:
    """The autograd graph behind one or several tensors: its nodes, and the bytes of host tensors
    that the nodes have saved for the backward pass.

    Excludes parameters, and tensors that a backward pass has freed. Also excludes tensors saved
    through hooks, because only code of the job can read them."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_whole = True  # False if a limit was reached before all nodes were visited
        self._nodes: set[Any] = set()
        self._storages: set[tuple[str, int]] = set()

    @property
    def count(self) -> int:
        return len(self._nodes)

    def add(self, o: Any, nodes_max: int, until: Optional[float] = None) -> int:
        """Adds at most NODES_MAX nodes of the graph of O, which may be any object. Stops when
        time.thread_time() reaches UNTIL. Returns the number of bytes added."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor") or not issubclass(type(o), torch.Tensor):
            return 0
        before, nodes_max = self.bytes, nodes_max + self.count
        with torch._C.DisableTorchFunctionSubclass():
            todo = deque([o.grad_fn])
            while todo:
                node = todo.popleft()
                if node is None or node in self._nodes:
                    continue
                if self.count >= nodes_max or (until and time.thread_time() > until):
                    self.is_whole = False
                    break
                self._nodes.add(node)
                self.bytes += sum(map(self._saved_bytes, _saved_names(type(node)), repeat(node)))
                todo.extend(next_node for next_node, _ in node.next_functions)
        return self.bytes - before

    def _saved_bytes(self, name: str, node: Any) -> int:
        from ._census import storage_bytes

        try:
            saved = getattr(node, name)
            parts = saved if isinstance(saved, tuple) else (saved,)
            found = [part.data for part in parts if part.unpack_hook is None]
        # either this torch is too old, or a backward pass has freed the tensor
        except (AttributeError, RuntimeError):
            return 0
        return sum(
            storage_bytes(t, self._storages)
            for t in found
            if t is not None and t.device.type == "cpu"
        )


@lru_cache(maxsize=1000)
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def module_numbers() -> set[int]:
    return {id(m.__dict__) for m in list(sys.modules.values()) if type(m) is ModuleType}


def _add(o: Any, seen: set[int], graph: Graph, modules: set[int]) -> int:
    """Returns the bytes of O and of the objects to which it refers. Visits a limited number of
    objects, and none that are in SEEN or GRAPH."""
    seen.add(id(o))
    todo, total, left = deque([o]), 0, _PARTS_MAX
    while todo and left:
        one, left = todo.popleft(), left - 1
        if _is_root(one, modules):
            continue
        total += size_of(one)
        graph.add(one, _NODES_MAX)
        new = [part for part in gc.get_referents(one) if id(part) not in seen]
        seen.update(map(id, new))
        todo.extend(islice(new, _PARTS_MAX))
    return total


def of_one(objects: Sequence[Any], container: Any, modules: set[int]) -> tuple[int, int]:
    """OBJECTS are entries of CONTAINER. Returns their mean number of bytes, and how many of these
    bytes are in autograd graphs. The first object is excluded from the mean, because its bytes
    include memory that all entries share."""
    seen, graph = {id(container)}, Graph()
    first, *others = objects or [None]
    _add(first, seen, graph, modules)
    shared = graph.bytes
    total = sum(_add(o, seen, graph, modules) for o in others)
    in_graph = (graph.bytes - shared) // max(len(others), 1)
    return total // max(len(others), 1) + in_graph, in_graph
