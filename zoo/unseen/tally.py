"""Shared by the programs of set h: pace, the programs' own samples of memory, and the last line of output."""
import contextlib
import json
import os
import sys
import time

TINY = "--tiny" in sys.argv


def flag(name):
    return name in sys.argv


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Silent:
    """Replaces the ebb package if marks are disabled."""

    def step(self, *args, **kwargs):
        pass

    mark = step

    def phase(self, name):
        return contextlib.nullcontext(name)


def marks():
    if os.environ.get("HELD_NO_MARKS"):
        return Silent()
    try:
        import ebb
        return ebb
    except ImportError:
        return Silent()


class Tally:
    """Records the live bytes counted by the program, and its resident memory."""

    def __init__(self, pace_s):
        self.pace_s = 0 if TINY else pace_s
        self.steps, self.live, self.rss = [], [], []
        self.began = self.last = time.monotonic()

    def step(self, n, live):
        """Ends a step, and waits so that all steps have about the same duration."""
        rest = self.last + self.pace_s - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        self.last = time.monotonic()
        if n == 1:
            self.began = self.last - self.pace_s
        self.steps.append(n)
        self.live.append(int(live))
        self.rss.append(resident())

    def end(self):
        print("HELD " + json.dumps({"steps": self.steps[-1], "train_s": round(self.last - self.began, 2),
                                    "step": self.steps, "live": self.live, "rss": self.rss}), flush=True)
