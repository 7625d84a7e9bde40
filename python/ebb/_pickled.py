"""Stores one object in a file: its pickle, then its large buffers unchanged, then an index of the
buffers. The magic number at the end is written last, so that an incomplete file is never mistaken
for a complete one."""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO

_MAGIC = b"ebb-obj1"
_END = struct.Struct("<QQ8s")  # pickle length, number of buffers, magic number
_LENGTH = struct.Struct("<Q")


def dump(file: BinaryIO, value: Any) -> None:
    """Writes VALUE to the empty FILE. If VALUE cannot be pickled, the file remains empty."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        file.seek(0)
        pickle.Pickler(file, 5, buffer_callback=buffers.append).dump(value)
        length = file.tell()
        lengths = b""
        for buffer in buffers:
            with buffer.raw() as raw:
                file.write(raw)
                lengths += _LENGTH.pack(raw.nbytes)
        file.write(lengths + _END.pack(length, len(buffers), _MAGIC))
        file.truncate()
        file.flush()
    except BaseException:
        file.seek(0)
        file.truncate()
        raise


def _end(file: BinaryIO) -> "tuple[int, int]":
    size = file.seek(0, 2)
    if size < _END.size:
        raise EOFError("the file contains no pickled object")
    file.seek(size - _END.size)
    length, count, magic = _END.unpack(file.read(_END.size))
    if magic != _MAGIC:
        raise EOFError("the pickled object is incomplete")
    return length, count


def is_whole(file: BinaryIO) -> bool:
    try:
        _end(file)
        return True
    except EOFError:
        return False


def load(file: BinaryIO) -> Any:
    """Reads the object from the file. Raises EOFError if the file contains no object, or the
    exception that unpickling raised."""
    length, count = _end(file)
    file.seek(-_END.size - count * _LENGTH.size, 2)
    lengths = [_LENGTH.unpack(file.read(_LENGTH.size))[0] for _ in range(count)]
    file.seek(length)
    buffers = []
    for number in lengths:
        # each buffer is allocated separately, so that arrays using it are writable
        buffer = bytearray(number)
        if file.readinto(buffer) != number:  # type: ignore[attr-defined]
            raise EOFError("the pickled object is incomplete")
        buffers.append(buffer)
    file.seek(0)
    return pickle.Unpickler(file, buffers=buffers).load()
