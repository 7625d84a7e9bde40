"""A thread prefetches batches somewhat faster than training uses them. The queue has no limit; `--maxsize` limits it to
24 batches. Uses only numpy."""

import argparse
import json
import os
import queue
import threading
import time

import numpy as np

try:
    import ebb
except ImportError:
    ebb = None
if os.environ.get("HELD_NO_MARKS"):
    ebb = None

ROWS, COLUMNS = 600, 500  # 2.4 MB in doubles
STEPS, EPOCHS, STEP_S, READ_S = 100, 7, 0.05, 0.04


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def read_batches(ready, disk, read_s):
    """Reads batches without end, at the speed of a disk."""
    rng = np.random.default_rng(1)
    due = time.monotonic()
    while True:
        due += read_s
        rows = rng.integers(0, len(disk), ROWS)
        ready.put(disk[rows].astype(np.float64))
        time.sleep(max(0, due - time.monotonic()))
        due = max(due, time.monotonic() - read_s)


def train_step(weights, batch):
    target = batch[:, :1]
    error = batch @ weights - target
    return weights - 1e-4 * (batch.T @ error) / len(batch), float((error ** 2).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--maxsize", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    ready = queue.Queue(maxsize=24 if args.maxsize else 0)
    disk = np.random.default_rng(0).integers(-128, 127, (5000, COLUMNS), dtype=np.int8)
    steps, step_s, read_s = (5, 0, 0) if args.tiny else (STEPS, STEP_S, READ_S)
    threading.Thread(target=read_batches, args=(ready, disk, read_s), daemon=True).start()
    weights, rows, start = np.zeros((COLUMNS, 1)), [], time.monotonic()
    for epoch in range(EPOCHS):
        for _ in range(steps):
            began = time.monotonic()
            weights, loss = train_step(weights, ready.get())
            time.sleep(max(0, began + step_s - time.monotonic()))
            rows.append((len(rows) + 1, ready.qsize() * ROWS * COLUMNS * 8, resident()))
            if ebb:
                ebb.step(len(rows))
        if ebb:
            ebb.mark("epoch", step=len(rows))
        print(f"epoch {epoch} loss {loss:.3f}, {ready.qsize()} batches ahead")
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
