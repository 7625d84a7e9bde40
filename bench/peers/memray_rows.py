#!/usr/bin/env python3
"""The first rows of memray's report of the peak: [bytes, [[function, file] of each frame]].

    memray_rows.py RESULTS ROWS
"""

import json
import sys

import memray


def stack_of(record, is_native):
    frames = record.hybrid_stack_trace() if is_native else record.stack_trace()
    return [[function, file] for function, file, _ in frames]


def main():
    with memray.FileReader(sys.argv[1]) as reader:
        records = reader.get_high_watermark_allocation_records(merge_threads=True)
        rows = sorted(records, key=lambda record: -record.size)[:int(sys.argv[2])]
        print(json.dumps([[row.size, stack_of(row, reader.metadata.has_native_traces)] for row in rows]))


if __name__ == "__main__":
    main()
