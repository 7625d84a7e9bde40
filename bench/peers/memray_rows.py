#!/usr/bin/env python3
"""Writes the first rows of two memray reports, one of the memory at the peak and one of the memory never freed, as JSON
lists of [bytes, [[function, file] of each frame]].

    memray_rows.py RESULTS ROWS
"""

import json
import sys

import memray


def stack_of(record, is_native):
    frames = record.hybrid_stack_trace() if is_native else record.stack_trace()
    return [[function, file] for function, file, _ in frames]


def main():
    count, found = int(sys.argv[2]), []
    with memray.FileReader(sys.argv[1]) as reader:
        for records in (reader.get_high_watermark_allocation_records, reader.get_leaked_allocation_records):
            rows = sorted(records(merge_threads=True), key=lambda record: -record.size)[:count]
            found.append([[row.size, stack_of(row, reader.metadata.has_native_traces)] for row in rows])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
