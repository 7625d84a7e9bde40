"""A simulated training, used by server_before.py and server.py. Like real trainings, it leaves memory behind in its
process."""

import time
from typing import Callable, Optional

import ebb

CACHE: "list[bytes]" = []  # Simulates a library's cache that its users cannot clear.


def train(steps: int, mib_per_step: int, report: "Optional[Callable[[int], None]]" = None) -> "dict[str, float]":
    if steps < 1:
        raise ValueError(f"{steps} steps are none")
    loss = 1.0
    for n in range(1, steps + 1):
        CACHE.append(b"x" * (mib_per_step << 20))
        time.sleep(0.02)
        loss *= 0.9
        ebb.step(n, max_steps=steps)
        if report:
            report(n)
    return {"steps": steps, "loss": loss}
