"""Parses sizes such as 512M or 24G."""

from __future__ import annotations

import re
from typing import Union

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(value: Union[int, str], what: str) -> int:
    """Converts a size to bytes. WHAT is the name of the value in the error message."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{what}={value!r} is not a size; write it like 512M or 24G")
    return int(float(found.group(1)) * _UNITS[found.group(2).upper()])


def limit(value: Union[int, str]) -> str:
    """Checks a limit in the form that `ebb run --limit` accepts: a size, or a percentage of the
    effective limit."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,2}%|100%", value.strip()):
        return value.strip()
    number = size(value, "limit")
    if number == 0:
        raise ValueError(f"limit={value!r} must be above 0")
    return str(number)
