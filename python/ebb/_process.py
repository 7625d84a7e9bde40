"""Facts about this process that other modules share: the variables of its run, and the pid of the
process in which hooks were installed. The pid is kept until that process has a wire. A process
forked from the one with the hooks is a worker and sends nothing, even if the wire is created only
after the fork."""

from __future__ import annotations

import os
from typing import Optional

_hooked: Optional[int] = None
_is_set = False
# variables of the run of an ebb that attached to this process; the environment does not have them
attached: dict[str, str] = {}


def variable(name: str) -> Optional[str]:
    """Returns a variable that describes the run, or None."""
    return attached.get(name) or os.environ.get(name) or None


def set_hooked() -> None:
    """Records that this process installed the hooks. Later calls have no effect: a forked child
    that installs more hooks does not replace its parent."""
    global _hooked, _is_set
    if not _is_set:
        _hooked, _is_set = os.getpid(), True


def take_hooked() -> Optional[int]:
    """Returns the pid of the process that installed the hooks. Called when a wire is created; after
    the first wire, returns None."""
    global _hooked
    found, _hooked = _hooked, None
    return found
