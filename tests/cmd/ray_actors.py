"""Starts three Ray actors, one of which keeps every argument it receives. The command-line argument of this program is
the duration in seconds."""

import sys
import time

import ray

ray.init(address="auto", log_to_driver=False, logging_level="error")


@ray.remote
class Hoarder:
    def __init__(self):
        self.kept = []

    def grow(self):
        self.kept.append(b"x" * (2 << 20))


@ray.remote
class Steady:
    def __init__(self):
        self.buffer = b"x" * (30 << 20)

    def work(self):
        return sum(self.buffer[:1000])


actors = [Hoarder.remote(), Steady.remote(), Steady.remote()]
calls = [actors[0].grow, actors[1].work, actors[2].work]
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    ray.get([call.remote() for call in calls])
    time.sleep(0.1)
