"""Facts about this process that several modules need: the variables that describe its run, and the
pid of the process that installed the hooks.

The first wire that is created takes the pid. If the wire is created in a fork of the process that
installed the hooks, the pid shows that the fork is a worker, which sends nothing."""

from __future__ import annotations

import os
from typing import Optional

_hooked: Optional[int] = None
_is_set = False
# if ebb attached to this process: the variables that describe the run, which its environment lacks
attached: dict[str, str] = {}


def variable(name: str) -> Optional[str]:
    """Returns the value of a variable that describes the run, or None if it is not set."""
    return attached.get(name) or os.environ.get(name) or None


def set_hooked() -> None:
    """Records that this process installed the hooks. Only the first call has an effect, so a forked
    child that also installs hooks does not take its parent's place."""
    global _hooked, _is_set
    if not _is_set:
        _hooked, _is_set = os.getpid(), True


def take_hooked() -> Optional[int]:
    """Returns the pid of the process that installed the hooks, but only to the first caller; later
    callers get None."""
    global _hooked
    found, _hooked = _hooked, None
    return found
