"""The process in which the shim set its hooks, for as long as it has no wire yet.

A process forked from that one is a worker and sends nothing, also where the wire is made only after
the fork."""

from __future__ import annotations

import os
from typing import Optional

_hooked: Optional[int] = None
_is_set = False


def set_hooked() -> None:
    """Hooks are set in this process. The first call counts: a child may set more of them."""
    global _hooked, _is_set
    if not _is_set:
        _hooked, _is_set = os.getpid(), True


def take_hooked() -> Optional[int]:
    """The process with the hooks, once: for the first wire alone."""
    global _hooked
    found, _hooked = _hooked, None
    return found
