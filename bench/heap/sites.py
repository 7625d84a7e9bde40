#!/usr/bin/env python3
"""Does the same as sites.c in Python, with small and large objects and one function per call site.

    bench/heap/sites.py SEED INTERVAL SECONDS FILE      writes a line per site: function, bytes, variance
"""

import collections
import math
import random
import sys
import time

SITES = 20
TICKS_PER_S = 50
SAMPLES_PER_S = 40  # Half of the value in sites.c, because the loop's own allocations are also sampled.
HEADER = sys.getsizeof(b"")
CALM_S = 6
CALM_SAMPLES_PER_S = 12


def site(number):
    """Returns a function that calls bytes(). Each function is compiled separately, so that it is a call site of its
    own."""
    scope = {}
    code = compile(f"def site_{number}(size):\n    return bytes(size)\n", f"site{number}.py", "exec")
    exec(code, scope)  # pylint: disable=exec-used
    return scope[f"site_{number}"]


class Site:
    def __init__(self, number, interval, chance):
        self.take, self.interval, self.chance = site(number), interval, chance
        self.scale = 16 << number % 14
        self.name, self.kept = f"site_{number}", []

    def allocate(self):
        made = self.take(self.scale + self.chance.randrange(self.scale * 3))
        if self.chance.random() < 1 / 3:
            return
        self.kept.append(made)
        if self.chance.random() < 1 / 4:
            k = self.chance.randrange(len(self.kept))
            self.kept[k] = self.kept[-1]
            self.kept.pop()

    def tick(self):
        count = self.interval * SAMPLES_PER_S / TICKS_PER_S / SITES / (self.scale * 2.5 + HEADER)
        for _ in range(int(count) + (self.chance.random() < count % 1)):
            self.allocate()

    def truth(self):
        total = variance = 0.0
        for size, count in collections.Counter(map(sys.getsizeof, self.kept)).items():
            share = -math.expm1(-size / self.interval)
            total += size * count
            variance += size * size * count * (1 - share) / share
        # If all objects were allocated in one burst, the sampling would become coarser at the end.
        time.sleep(0.2)
        return f"{self.name} {total:.0f} {variance:.0f}\n"


def calm_down(interval):
    """Python allocates so fast at its start that the profiler raises the sampling interval. Waits until the interval
    has fallen to the requested value."""
    for _ in range(CALM_S * TICKS_PER_S):
        for _ in range(64):
            bytes(int(interval * CALM_SAMPLES_PER_S / TICKS_PER_S / 64))
        time.sleep(1 / TICKS_PER_S)


def main():
    seed, interval, seconds, path = sys.argv[1:]
    chance = random.Random(int(seed))
    calm_down(float(interval))
    sites = [Site(number, float(interval), chance) for number in range(SITES)]
    for _ in range(int(seconds) * TICKS_PER_S):
        for one in sites:
            one.tick()
        time.sleep(1 / TICKS_PER_S)
    lines = [one.truth() for one in sites]
    with open(path, "w", encoding="ascii") as file:
        file.writelines(lines)
    time.sleep(600)


if __name__ == "__main__":
    main()
