#!/usr/bin/env python3
"""Runs a program of the zoo under tracemalloc and prints the lines that grew from its first step to its last.

    traced.py REPORT PROGRAM [ARGUMENT]...

The two snapshots are taken where a user would take them: before the first step and after the last one. Earlier
allocations are not traced, because importing torch alone allocates a million blocks.
"""

import json
import runpy
import sys
import tracemalloc
from pathlib import Path

ZOO = Path(__file__).resolve().parents[2] / "zoo"
ROWS = 3


def main():
    report, sys.argv = sys.argv[1], sys.argv[2:]
    sys.path.insert(0, str(ZOO))
    import common

    taken = []
    begin, end = common.Job.begin, common.Job.end

    def begin_traced(job, *args, **kwargs):
        tracemalloc.start()
        taken.append(tracemalloc.take_snapshot())
        begin(job, *args, **kwargs)

    def end_traced(job):
        rows = tracemalloc.take_snapshot().compare_to(taken[0], "lineno")[:ROWS]
        lines = [[row.traceback[0].filename, row.traceback[0].lineno, row.size_diff] for row in rows]
        Path(report).write_text(json.dumps(lines))
        end(job)

    common.Job.begin, common.Job.end = begin_traced, end_traced
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
