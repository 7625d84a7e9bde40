"""Lists of images that do not fill memory: images are decoded when accessed, and cached up to a
budget.

A list of opened PIL images looks small, because PIL reads the pixels of an image only when they are
accessed. But the pixels then stay in the image object, so during the first epoch the list grows to
the size of all its pixels.

    images = ebb.data.LazyImages(paths, budget="2G")  # instead of [Image.open(p) for p in paths]
    collate = ebb.data.keep_nothing(collate)          # if you cannot replace the list
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import io
import operator
import os
import threading
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Union, overload

from ._size import size

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["BadImage", "LazyImages", "keep_nothing"]

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


class BadImage(OSError):
    """Raised if an image cannot be decoded. The message contains its name."""


def _pixel_bytes(image: "Image") -> int:
    """Returns the bytes that a pixel takes in PIL's memory. PIL stores three channels in four
    bytes."""
    if image.mode in ("1", "L", "P"):
        return 1
    return 2 if image.mode.startswith("I;16") else 4


def _bytes_of(image: "Image") -> int:
    return image.width * image.height * _pixel_bytes(image)


# ---- decoding on demand ----


class _Store:
    """The sources of the images, and the images that this process has decoded."""

    def __init__(
        self, sources: "list[Union[str, bytes]]", budget: int, mode: Optional[str]
    ) -> None:
        self.sources = sources
        self.budget = budget
        self.mode = mode
        self.forget()

    def forget(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.images: "collections.OrderedDict[int, Image]" = collections.OrderedDict()
        self.bytes = 0

    def __getstate__(self) -> "dict[str, Any]":
        return {"sources": self.sources, "budget": self.budget, "mode": self.mode}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self.__init__(**state)  # type: ignore[misc]

    def name(self, key: int) -> str:
        source = self.sources[key]
        return source if isinstance(source, str) else f"{len(source)} bytes in memory"

    def decode(self, key: int) -> "Image":
        from PIL import Image

        source = self.sources[key]
        try:
            with Image.open(source if isinstance(source, str) else io.BytesIO(source)) as opened:
                image = opened.convert(self.mode) if self.mode else opened.copy()
                image.format = opened.format
                return image
        # these errors are clear without the name of the image
        except (FileNotFoundError, PermissionError, MemoryError):
            raise
        except Exception as error:
            raise BadImage(f"image {key} ({self.name(key)}) cannot be decoded: {error}") from error

    def take(self, key: int) -> "Optional[Image]":
        with self.lock:
            image = self.images.get(key)
            if image is not None:
                self.images.move_to_end(key)
            return image

    def keep(self, key: int, image: "Image") -> bool:
        """Adds an image to the cache. Returns False if the image is larger than the budget."""
        need = _bytes_of(image)
        if need > self.budget:
            return False
        with self.lock:
            if key not in self.images:
                while self.bytes + need > self.budget:
                    self.bytes -= _bytes_of(self.images.popitem(last=False)[1])
                self.images[key] = image
                self.bytes += need
        return True

    def get(self, key: int) -> "Image":
        if self.pid != os.getpid():
            # After a fork, the child drops the parent's images and lock, because a thread of the
            # parent may have held the lock.
            self.forget()
        image = self.take(key)
        if image is None:
            image = self.decode(key)
            if not self.keep(key, image):
                return image
        # The cache keeps a copy, because the caller may change the image.
        mine = image.copy()
        mine.format = image.format
        return mine


def _checked(source: Source, index: int) -> "Union[str, bytes]":
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    try:
        path = os.fspath(source)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise TypeError(f"image {index} is a {type(source).__name__}, neither a path nor bytes")
    # absolute, because a worker's working directory may differ
    return os.path.abspath(path)


class LazyImages(Sequence):  # type: ignore[type-arg]
    """Replaces a list of PIL images: supports indexing, slicing, iteration and len(). Each image is
    decoded when it is accessed, and belongs to the caller. At most BUDGET bytes of decoded pixels
    are cached; the least recently used images are dropped first. If MODE is set, images are
    converted to it, for example to "RGB".

    The budget applies to each process. A forked or spawned worker starts with an empty cache.
    Slices share the cache of the whole sequence. Thread-safe.
    """

    def __init__(
        self,
        paths_or_bytes: "Iterable[Source]",
        budget: Union[int, str] = "2G",
        mode: Optional[str] = None,
    ) -> None:
        if isinstance(paths_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError("LazyImages requires a list of images, not a single image")
        sources = [_checked(source, index) for index, source in enumerate(paths_or_bytes)]
        self._store = _Store(sources, size(budget, "budget"), mode)
        self._keys: "Sequence[int]" = range(len(sources))

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> "Image": ...

    @overload
    def __getitem__(self, index: slice) -> "LazyImages": ...

    def __getitem__(self, index: "Union[int, slice]") -> "Union[Image, LazyImages]":
        if isinstance(index, slice):
            part = object.__new__(LazyImages)
            part._store, part._keys = self._store, self._keys[index]
            return part
        try:
            key = self._keys[operator.index(index)]
        except IndexError:
            raise IndexError(f"image {index} of {len(self)}") from None
        return self._store.get(key)

    def __repr__(self) -> str:
        kept = f"{self.kept_bytes} of {self._store.budget} bytes cached"
        return f"<LazyImages: {len(self)} images, {kept}>"

    @property
    def kept_bytes(self) -> int:
        """Bytes of decoded pixels that are cached in this process."""
        return self._store.bytes if self._store.pid == os.getpid() else 0


# ---- keep_nothing, for a list of images that the user cannot replace ----


def _is_decoded(image: "Image") -> bool:
    held = vars(image)
    return held.get("_im", held.get("im")) is not None  # Pillow 11 renamed im to _im


def _opened_again(image: Any) -> "Optional[Image]":
    """Opens the same file again in a new image. Returns None if it cannot be opened."""
    from PIL import Image

    name = getattr(image, "filename", None)
    file = getattr(image, "fp", None)
    if name and os.path.isfile(name):
        again = Image.open(name)
    elif file is not None and not file.closed:
        # Reads all bytes of the file, and then restores the file position, where a decoder of IMAGE
        # would continue.
        position = file.tell()
        file.seek(0)
        data = file.read()
        file.seek(position)
        again = Image.open(io.BytesIO(data))
    else:
        return None
    if image.tell():
        again.seek(image.tell())
    if again.size != image.size:
        again.draft(image.mode, image.size)
    return again


def _copy_of(image: "Image") -> "Image":
    again = None if _is_decoded(image) else _opened_again(image)
    if again is None:
        again = image.copy()
        again.format = image.format
    return again


_PLAIN = (int, float, complex, str, bytes, type(None))


class _Hands:
    """The copied images that one call of the collate function receives."""

    def __init__(self) -> None:
        from PIL.Image import Image

        self.image_class = Image
        self.given: "dict[int, Image]" = {}

    def copy(self, value: Any) -> Any:
        """Copies images, and containers that contain images; returns all other values unchanged."""
        if isinstance(value, self.image_class):
            copied = _copy_of(value)
            self.given[id(copied)] = copied
            return copied
        made: Any
        if isinstance(value, MutableMapping):
            made = copy.copy(value)
            for key, item in value.items():
                made[key] = self.copy(item)
            return made
        if type(value) in (list, tuple):
            return type(value)(map(self.copy, value))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.copy, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            made = copy.copy(value)
            for field in dataclasses.fields(value):
                object.__setattr__(made, field.name, self.copy(getattr(value, field.name)))
            return made
        return value

    def spare(self, value: Any, seen: "set[int]") -> None:
        """The batch contains the images in VALUE, so they are not closed after the call."""
        if not self.given or isinstance(value, _PLAIN) or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, self.image_class):
            self.given.pop(id(value), None)
        elif isinstance(value, Mapping):
            for item in value.values():
                self.spare(item, seen)
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            for item in value:
                self.spare(item, seen)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            for item in list(vars(value).values()):
                self.spare(item, seen)

    def close(self) -> "list[weakref.ref[Image]]":
        closed = [weakref.ref(image) for image in self.given.values()]
        for image in self.given.values():
            file = getattr(image, "fp", None)
            if file is not None:
                file.close()
            image.close()
        self.given.clear()
        return closed


class keep_nothing:
    """Wraps a collate function so that it cannot keep its inputs in memory: keep_nothing(collate).

    The function receives copies of the examples. Images that were opened but not decoded yet are
    opened again for the copy, so that the images of the data set stay undecoded. When the batch is
    complete, every copied image that is not in the batch is closed. If the function keeps a
    reference to such a copy, the copy no longer holds pixels. Other objects that the function
    creates and keeps are not affected.
    """

    def __init__(self, collate: Callable[..., Any]) -> None:
        self.collate = collate
        self._closed: "list[weakref.ref[Image]]" = []

    def __call__(self, examples: Any, *args: Any, **kwargs: Any) -> Any:
        hands = _Hands()
        try:
            batch = self.collate(hands.copy(examples), *args, **kwargs)
            hands.spare(batch, set())
        finally:
            self._closed = hands.close()
        return batch

    @property
    def hoarded(self) -> int:
        """Number of input images of the last call that something other than its batch still refers
        to. If it is above 0, the collate function keeps its inputs in memory."""
        return sum(ref() is not None for ref in self._closed)

    def __getstate__(self) -> "dict[str, Any]":
        return {"collate": self.collate}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self.__init__(state["collate"])  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        # trainers inspect attributes of their collate function
        if name == "collate" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.collate, name)
