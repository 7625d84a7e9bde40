"""A census counts the live tensors and Python objects of this process, and finds what keeps the
largest ones alive. It works without torch and never imports it."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import filterfalse
from typing import Any, Iterable, Optional, Tuple, Union

from . import _process, _referrers, _truth
from ._wire import rank_of_environment

_ROWS_MAX = 200  # maximum number of rows per table; only the largest rows are kept
# The entries of containers of at least this many bytes are counted even after the census has run
# out of time.
_BIG_CONTAINER = 1 << 14
# maximum number of entries measured per container; the total is extrapolated from these
_OF_ONE_CONTAINER = 10000
# maximum number of object ids remembered at a time, which bounds the census's own memory
_PLAIN_MAX = 500_000
_SLICES = 64

# a row of the census, and one of the objects counted in this row
_Found = Tuple["Holder", Any]
# References are searched for this many of the largest tensors, and for this many of the other
# objects.
_LARGEST = 3


@dataclass
class TensorRow:
    """Tensors with the same properties. A storage shared by several tensors is counted only
    once."""

    device: str
    dtype: str
    shape: list[int]
    requires_grad: bool
    is_grad: bool
    count: int
    bytes: int
    is_leaf: bool = True  # False if autograd computed the tensor; parameters are leaves too


@dataclass
class TypeRow:
    type: str
    count: int
    bytes: int


@dataclass
class Holder:
    """A chain of references that keeps an object alive. The object is large itself, or is one of
    COUNT objects that are large together."""

    what: str
    count: int
    bytes: int
    chain: str


@dataclass
class Census:
    pid: int
    rank: Optional[int]
    time: float
    step: Optional[int]
    # "step": taken between two steps; "thread": taken by a thread at any time; "call": taken by the
    # program through census()
    at: str
    cost_s: float = 0.0
    has_torch: bool = False
    tensor_count: int = 0
    tensor_bytes: int = 0
    tensors: list[TensorRow] = field(default_factory=list)
    object_count: int = 0
    object_bytes: int = 0
    is_sampled: bool = False  # True if object sizes are estimates
    objects: list[TypeRow] = field(default_factory=list)
    largest: list[Holder] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self)}

    def text(self, top: int = 10) -> str:
        return _text(self, top)

    __str__ = text


def size_text(n: float) -> str:
    sign = "-" if n < 0 else ""
    n = abs(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{sign}{n:.0f} B" if unit == "B" else f"{sign}{n:.3g} {unit}"
        n /= 1024
    return f"{sign}{n:.3g} TiB"


def _tensor_name(r: TensorRow) -> str:
    flags = " requires_grad" * r.requires_grad + " gradient" * r.is_grad
    flags += " in autograd graph" * (not r.is_leaf)
    return f"{r.device} {r.dtype} {r.shape}{flags}"


def _text(c: Census, top: int) -> str:
    where = "" if c.step is None else f" at step {c.step}"
    rank = "" if c.rank is None else f" (rank {c.rank})"
    lines = [f"census of process {c.pid}{rank}{where}, taken in {c.cost_s * 1e3:.0f} ms"]
    if c.has_torch:
        lines.append(f"tensors: {c.tensor_count}, {size_text(c.tensor_bytes)}")
        lines += [
            f"  {size_text(t.bytes):>10} {t.count:>8}  {_tensor_name(t)}" for t in c.tensors[:top]
        ]
    else:
        lines.append("tensors: torch is not imported")
    about = " (estimated)" if c.is_sampled else ""
    lines.append(f"objects: {c.object_count}, {size_text(c.object_bytes)}{about}")
    lines += [f"  {size_text(o.bytes):>10} {o.count:>8}  {o.type}" for o in c.objects[:top]]
    lines += [f"held: {h.count} × {h.what}, {size_text(h.bytes)}: {h.chain}" for h in c.largest]
    return "\n".join(lines)


# ---- tensors ----


def _tensors_among(objects: Iterable[Any], torch: Any) -> list[Any]:
    # types are compared directly, because isinstance would read __class__, which may run code of
    # the job
    is_tensor: dict[type, bool] = {}
    found = []
    for o in objects:
        t = type(o)
        known = is_tensor.get(t)
        if known is None:
            known = is_tensor[t] = issubclass(t, torch.Tensor)
        if known:
            found.append(o)
    return found


def _gradients(tensors: list[Any], seen: set[int]) -> list[Any]:
    """Returns gradients that gc does not list, because only C++ refers to them."""
    found = []
    for t in tensors:
        if t.requires_grad and t.is_leaf and t.grad is not None and id(t.grad) not in seen:
            found.append(t.grad)
    return found


def _storages(t: Any) -> list[Any]:
    parts = (t._indices(), t._values()) if t.is_sparse else (t,)
    return [p.untyped_storage() for p in parts]


def storage_bytes(t: Any, seen: set[tuple[str, int]]) -> int:
    """Returns the size of T's storage, or 0 if the storage was already counted."""
    if t.device.type == "meta" or type(t).__name__ == "FakeTensor":
        return 0
    total = 0
    try:
        for s in _storages(t):
            key = (str(s.device), s.data_ptr())
            if key[1] and key not in seen:
                seen.add(key)
                total += s.nbytes()
    # a tensor that only wraps other tensors, which are listed separately
    except Exception:
        return total
    return total


def _count_tensors(c: Census, objects: list[Any], torch: Any, is_safe: bool) -> list[_Found]:
    """Fills the table of tensors. Returns the largest rows, each with one of its tensors."""
    quiet = getattr(torch._C, "DisableTorchFunctionSubclass", nullcontext)
    rows: dict[tuple[Any, ...], TensorRow] = {}
    one_of: dict[int, Any] = {}
    seen: set[tuple[str, int]] = set()
    with quiet():
        tensors = _tensors_among(objects, torch)
        ids = {id(t) for t in tensors}
        # gradients are read only if no other thread can be writing them in a backward pass
        grads = _gradients(tensors, ids) if is_safe else []
        leaves = [t for t in tensors if t.requires_grad and t.is_leaf] if is_safe else []
        grad_ids = {id(t.grad) for t in leaves}
        # base tensors are counted before their views, because they own the memory
        tensors.sort(key=lambda t: t._is_view())
        for t in tensors + grads:
            try:
                shape, dtype, device = list(t.shape), str(t.dtype), str(t.device)
            except Exception:
                continue
            is_grad = id(t) in grad_ids
            is_leaf = not t.requires_grad or bool(t.is_leaf)
            key = (device, dtype, tuple(shape), bool(t.requires_grad), is_grad, is_leaf)
            row = rows.get(key)
            if row is None:
                row = rows[key] = TensorRow(
                    device, dtype.replace("torch.", ""), shape, key[3], is_grad, 0, 0, is_leaf
                )
            size = storage_bytes(t, seen)
            row.count += 1
            row.bytes += size
            if size:
                one_of[id(row)] = t
    c.has_torch = True
    c.tensor_count = sum(r.count for r in rows.values())
    c.tensor_bytes = sum(r.bytes for r in rows.values())
    c.tensors = sorted(rows.values(), key=lambda r: (-r.bytes, -r.count))[:_ROWS_MAX]
    return [
        (Holder(f"tensor {_tensor_name(r)}", r.count, r.bytes, ""), one_of[id(r)])
        for r in c.tensors[:_LARGEST]
        if r.bytes
    ]


# ---- objects ----


def _type_name(t: type) -> str:
    module = getattr(t, "__module__", None)
    name = getattr(t, "__qualname__", None) or getattr(t, "__name__", "?")
    return str(name) if module in (None, "builtins") else f"{module}.{name}"


def sizeof(o: Any) -> int:
    # a decoded image, whose pixels sys.getsizeof does not include
    if type(o).__name__ == "ImagingCore":
        try:
            width, height = o.size
            return int(width * height) * {"1": 1, "L": 1, "P": 1, "I;16": 2}.get(o.mode, 4)
        except Exception:
            return 0
    # only the storage object itself is measured; its memory is counted with its tensors
    if type(o).__name__ in ("UntypedStorage", "TypedStorage"):
        return object.__sizeof__(o)
    try:
        return sys.getsizeof(o)
    except Exception:
        return 0


def _add(table: dict[type, list[float]], t: type, count: float, size: float) -> None:
    row = table.setdefault(t, [0.0, 0.0])
    row[0] += count
    row[1] += size


class _Largest:
    """Keeps only the largest of the objects added to it."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Any]] = []
        self._floor = 1 << 12

    def see(self, size: int, o: Any) -> None:
        if size < self._floor:
            return
        self.kept.append((size, o))
        if len(self.kept) > 2048:
            self.kept.sort(key=lambda pair: -pair[0])
            del self.kept[256:]
            self._floor = self.kept[-1][0]


class _Plain:
    """Counts objects that gc does not track because they contain no references: strings, bytes,
    arrays, images. They are found through the objects that refer to them, and each is counted
    once."""

    def __init__(self, largest: _Largest) -> None:
        self.table: dict[type, list[float]] = {}
        self.seen: set[int] = set()
        self._largest = largest

    @property
    def is_full(self) -> bool:
        return len(self.seen) >= _PLAIN_MAX

    def _take(self, found: Iterable[Any], weight: float) -> None:
        plain = {id(o): o for o in filterfalse(gc.is_tracked, found)}
        for number in plain.keys() - self.seen:
            o = plain[number]
            size = sizeof(o)
            _add(self.table, type(o), weight, weight * size)
            self._largest.see(size, o)
            # a view is counted as the array whose memory it uses
            if type(o).__name__ == "ndarray" and o.base is not None:
                self._take([o.base], weight)
        self.seen.update(plain)

    def look(self, containers: list[Any]) -> None:
        self._take(gc.get_referents(*containers), 1.0)

    def look_into(self, big: Any) -> None:
        stride = 1 + sys.getsizeof(big) // 8 // _OF_ONE_CONTAINER
        found = big if type(big) in (list, tuple) else gc.get_referents(big)
        self._take(found[::stride], float(stride))


def _one_of_each_type(sized: list[tuple[int, Any]]) -> list[_Found]:
    found: dict[type, _Found] = {}
    for size, o in sorted(sized, key=lambda pair: -pair[0]):
        if type(o) not in found and len(found) < _LARGEST:
            found[type(o)] = (Holder(_type_name(type(o)), 1, size, ""), o)
    return list(found.values())


def _sizes(
    objects: list[Any], largest: _Largest, until: float
) -> tuple[Counter[type], float, list[Any]]:
    """Returns the bytes of each type, the factor by which to extrapolate them, and the containers
    with many entries."""
    sizes: Counter[type] = Counter()
    big: list[Any] = []
    done = 0
    while done < _SLICES and time.monotonic() < until:
        for o in objects[done::_SLICES]:
            size = sizeof(o)
            sizes[type(o)] += size
            largest.see(size, o)
            if size >= _BIG_CONTAINER:
                big.append(o)
        done += 1
    return sizes, _SLICES / max(done, 1), big


def _count_objects(c: Census, objects: list[Any], until: float) -> list[_Found]:
    largest = _Largest()
    sizes, factor, big = _sizes(objects, largest, until)
    plain, others, done = _Plain(largest), _Plain(largest), 0
    for o in big:
        plain.look_into(o)
    others.seen = plain.seen
    numbers = {id(o) for o in big}
    # each slice takes objects from the whole list, so the slices visited before time runs out are
    # representative
    while done < _SLICES and not plain.is_full and time.monotonic() < until:
        others.look([o for o in objects[done::_SLICES] if id(o) not in numbers])
        done += 1
    c.is_sampled = done < _SLICES or factor > 1
    table = {t: [float(n), sizes[t] * factor] for t, n in Counter(map(type, objects)).items()}
    for part, times in ((plain.table, 1.0), (others.table, _SLICES / max(done, 1))):
        for t, (count, size) in part.items():
            _add(table, t, count * times, size * times)
    rows = [TypeRow(_type_name(t), round(n), round(size)) for t, (n, size) in table.items()]
    rows = [r for r in rows if not r.type.startswith("ebb._")]
    c.object_count = sum(r.count for r in rows)
    c.object_bytes = sum(r.bytes for r in rows)
    c.objects = sorted(rows, key=lambda r: (-r.bytes, -r.count))[:_ROWS_MAX]
    return _one_of_each_type(largest.kept)


# ---- the complete census ----


def take(step: Optional[int] = None, at: str = "call", budget_s: float = 3.0) -> Census:
    """Takes a census. Once the time budget is used up, the remaining object sizes are estimated and
    references are not searched. Tensors are always counted completely."""
    begun = time.monotonic()
    c = Census(os.getpid(), rank_of_environment(), time.time(), step, at)
    torch = sys.modules.get("torch")
    objects = gc.get_objects()
    found: list[_Found] = []
    if torch is not None and hasattr(torch, "Tensor") and hasattr(torch, "_C"):
        found = _count_tensors(c, objects, torch, is_safe=at != "thread")
    found += _count_objects(c, objects, begun + budget_s * 2 / 3)
    del objects
    ours: list[Any] = [found, *found]
    for holder, o in found:
        holder.chain = _referrers.chain(o, ours, begun + budget_s)
        c.largest.append(holder)
    c.largest.sort(key=lambda h: -h.bytes)
    c.memory = _truth.read()
    c.cost_s = time.monotonic() - begun
    return c


def _rows(c: Union[Census, dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    d = c.to_dict() if isinstance(c, Census) else c
    rows = {
        ("tensor", _tensor_name(TensorRow(**r))): (r["count"], r["bytes"]) for r in d["tensors"]
    }
    rows.update({("object", r["type"]): (r["count"], r["bytes"]) for r in d["objects"]})
    return rows


@dataclass
class Growth:
    kind: str  # "tensor" or "object"
    name: str
    count: int
    bytes: int

    def __str__(self) -> str:
        return f"{'+' * (self.bytes >= 0)}{size_text(self.bytes)} {self.count:+d}  {self.name}"


def diff(
    a: Union[Census, dict[str, Any]], b: Union[Census, dict[str, Any]], top: int = 20
) -> list[Growth]:
    """Returns the changes from A to B, largest growth first."""
    before, after = _rows(a), _rows(b)
    found = []
    for key in {**before, **after}:
        n, size = after.get(key, (0, 0))
        m, old = before.get(key, (0, 0))
        if n != m or size != old:
            found.append(Growth(key[0], key[1], n - m, size - old))
    return sorted(found, key=lambda g: (-g.bytes, -g.count, g.name))[:top]


# ---- writing ----

_kept = 0
_private: Optional[str] = None


def _folder() -> str:
    global _private
    run = _process.variable("EBB_RUN_DIR")
    if run:
        folder = os.path.join(run, "census")
        os.makedirs(folder, exist_ok=True)
        return folder
    if _private is None:
        import tempfile

        _private = tempfile.mkdtemp(prefix="ebb-census-")
    return _private


def _number(name: str, pid: int) -> int:
    parts = name.split("-")
    return int(parts[0]) if len(parts) == 3 and parts[0].isdigit() and parts[1] == str(pid) else 0


def keep(c: Census) -> str:
    """Writes the census atomically, into the run folder or, outside a run, into a private folder.
    Returns its path. Raises OSError on failure."""
    global _kept
    folder = _folder()
    if _kept == 0:  # a process of an earlier segment of the run may have had the same pid
        _kept = max((_number(name, c.pid) for name in os.listdir(folder)), default=0)
    step = "none" if c.step is None else str(c.step)
    path = os.path.join(folder, f"{_kept + 1:04d}-{c.pid}-{step}.json")
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(c.to_dict(), f)
    os.replace(path + ".new", path)
    _kept += 1
    return path
