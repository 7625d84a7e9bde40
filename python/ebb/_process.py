"""Facts about this process that several modules share: the variables that describe its run, and the
pid of the process that installed the hooks.

The pid is kept until that process creates a wire. A process forked from that process is a worker
and sends nothing, even if the wire is created only after the fork."""

from __future__ import annotations

import os
from typing import Optional

_hooked: Optional[int] = None
_is_set = False
# variables of the run if ebb attached to this process: the environment then lacks them
attached: dict[str, str] = {}


def variable(name: str) -> Optional[str]:
    """Returns the value of a variable that describes the run, or None."""
    return attached.get(name) or os.environ.get(name) or None


def set_hooked() -> None:
    """Records that this process installed the hooks. Only the first call has an effect, so that a
    forked child that installs more hooks does not replace its parent."""
    global _hooked, _is_set
    if not _is_set:
        _hooked, _is_set = os.getpid(), True


def take_hooked() -> Optional[int]:
    """Returns the pid of the process that installed the hooks, for the first wire that is created;
    None for later wires."""
    global _hooked
    found, _hooked = _hooked, None
    return found
