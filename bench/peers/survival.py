#!/usr/bin/env python3
"""Does the job get through? A leaking trainer with a limit, under ebb and under what others use.

It is the part `beside` of bench/guard/guard.py, once. As a program, with a Python that has psutil, it
prints what that prints with --json."""

import json
import os
import subprocess
import sys

GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "guard")
LIMIT_S = 400


def measure(options):
    """The rows of the table; None with a sentence where it cannot be run."""
    env = {**os.environ, "EBB_BINARY": options.ebb, "EBB_BUILD_DIR": options.build}
    try:
        done = subprocess.run([options.python, os.path.abspath(__file__)], env=env, text=True,
                              stdout=subprocess.PIPE, check=False, timeout=LIMIT_S)
        return json.loads(done.stdout)["rows"]
    except (ValueError, subprocess.TimeoutExpired) as error:
        print(f"bench: survival is left out: {error}", file=sys.stderr)
        return None


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
    return guard.main(["--only", "beside", "--json"])


if __name__ == "__main__":
    sys.exit(main())
