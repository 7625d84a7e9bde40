"""Remembers the process in which the shim installed its hooks, until that process has a wire. A
process forked from it is a worker and sends nothing, even if the wire is created only after
the fork."""

from __future__ import annotations

import os
from typing import Optional

_hooked: Optional[int] = None
_is_set = False


def set_hooked() -> None:
    """Records that hooks are installed in this process. Only the first call counts, as a child
    may install more of them."""
    global _hooked, _is_set
    if not _is_set:
        _hooked, _is_set = os.getpid(), True


def take_hooked() -> Optional[int]:
    """Returns the pid of the process with the hooks, but only once, for the first wire."""
    global _hooked
    found, _hooked = _hooked, None
    return found
