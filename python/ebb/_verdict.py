"""The live verdict of this run, from the process that watches it."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, Optional

from ._wire import wire


def verdict(timeout: float = 1.0) -> Optional[dict[str, Any]]:
    """What ebb thinks of this run's memory right now, as `ebb verdict --json` tells it of the tree;
    None outside a run, or when there is no answer within TIMEOUT seconds."""
    w = wire()
    base = os.environ.get("EBB_SOCKET")
    if not w.is_there or not base:
        return None
    path = f"{base}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.settimeout(max(0.0, timeout))
            s.bind(path)
            try:
                if not w.mark("query", True, name="verdict", reply=path):
                    return None
                answer = json.loads(s.recv(1 << 20))
            finally:
                os.unlink(path)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
