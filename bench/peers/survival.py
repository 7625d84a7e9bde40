#!/usr/bin/env python3
"""Measures whether a leaking trainer with a limit survives under ebb and under other tools.

Runs one round of the part `beside` of bench/guard/guard.py. As a program, requires a Python with psutil, measures the
half of the table that its argument names, and prints the same JSON as `guard.py --only beside --json`.

earlyoom depends on the memory of the whole machine, so it is measured alone. The other tools have their own limits
and run in the background."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "guard")
LIMIT_S = 400


def measure(options, half):
    """Measures one half of the table. Returns its rows, or an empty list if they could not be measured."""
    env = {**os.environ, "EBB_BINARY": options.ebb, "EBB_BUILD_DIR": options.build}
    try:
        done = subprocess.run([options.python, os.path.abspath(__file__), half], env=env, text=True,
                              stdout=subprocess.PIPE, check=False, timeout=LIMIT_S)
        return json.loads(done.stdout)["rows"]
    except (ValueError, subprocess.TimeoutExpired) as error:
        print(f"bench: survival is left out: {error}", file=sys.stderr)
        return []


def begin(options):
    """Measures the half of the table that needs the machine to itself, then starts the other half in the background.
    Returns a future of all rows."""
    alone = measure(options, "alone")
    pool = ThreadPoolExecutor(1)
    # Both halves have the same title, so it is printed once.
    return pool.submit(lambda: (alone and measure(options, "rest")) + alone[1:])


def print_rows(rows):
    width = max(len(row["what"]) for row in rows if "what" in row)
    for row in rows:
        if "title" in row:
            print(f"\n{row['title']}")
        else:
            value = "finished" if row.get("held") else row["value"]
            print(f"    {row['what'].ljust(width)}  {value.ljust(12)}  {row['note']}".rstrip())


def main():
    sys.path.insert(0, GUARD)
    import guard

    guard.SAVE_EVERY = guard.SAVE_EVERY[:1]
    is_alone = sys.argv[1] == "alone"
    guard.WAYS = [way for way in guard.WAYS if (way[1] is guard.beside_earlyoom) == is_alone]
    return guard.main(["--only", "beside", "--json"])


if __name__ == "__main__":
    sys.exit(main())
