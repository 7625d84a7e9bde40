#!/usr/bin/env python3
"""Leaks 50 MB among 5 GB of temporary memory in 45 s, and then waits to be killed.

    bench/heap/leak.py blocks|objects

With "blocks", the leak is a cache of decoded data, 100 kB each; with "objects", it is a list of small dictionaries.
"""

import sys
import time

TICKS = 450
TICK_S = 0.1
CHURN_BYTES = 5_000_000_000 // TICKS
LEAK_BYTES = 50_000_000 // TICKS
kept = []


def keep_block():
    kept.append(bytearray(LEAK_BYTES))  # leaks: blocks


def keep_objects():
    for i in range(LEAK_BYTES // 208):
        kept.append({"step": i, "loss": i * 0.5, "name": "x"})  # leaks: objects


def churn():
    names = [f"sample {i}" for i in range(20000)]
    index = {name: [i] for i, name in enumerate(names)}
    left = CHURN_BYTES - 5_000_000
    while left > 0:
        made = [bytearray(60000) for _ in range(40)]
        left -= len(made) * 60000
    return len(index)


def main():
    keep = {"blocks": keep_block, "objects": keep_objects}[sys.argv[1]]
    begin = time.monotonic()
    for tick in range(TICKS):
        keep()
        churn()
        time.sleep(max(0, begin + (tick + 1) * TICK_S - time.monotonic()))
    time.sleep(600)


if __name__ == "__main__":
    main()
