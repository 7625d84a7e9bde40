#!/usr/bin/env python3
"""Workloads for the profilers: a loop that is typical of Python programs, and a training loop.

    bench/heap/workloads.py loop|objects|train --units N [--workers N] [--report FILE] [--watch]

"loop" uses dictionaries, strings, numpy, and decodes a JPEG of 384 × 384. "objects" is the same without the JPEG:
small Python objects only, which is the worst case. "train" trains a small torch CNN on the CPU, with batches that
a DataLoader worker decodes from JPEGs. --report writes the time of N units and the memory of this process;
--watch also writes the profiler's memory in idle processes.
"""

import argparse
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time

SIDE = 64
BATCH = 8
WARM_UP_UNITS = 8


def pictures(count, side):
    import numpy
    from PIL import Image

    chance = numpy.random.default_rng(7)
    for _ in range(count):
        small = chance.integers(0, 256, (side // 8, side // 8, 3), dtype=numpy.uint8)
        out = io.BytesIO()
        Image.fromarray(small).resize((side, side)).save(out, "JPEG", quality=90)
        yield out.getvalue()


# ---- the loop ----


def records():
    rows = [{"id": i, "name": f"item {i}", "tags": [str(i + k) for k in range(4)]} for i in range(1200)]
    index = {row["name"]: row for row in rows}
    return " ".join(sorted(index))[:64], index


def make_loop():
    import numpy
    from PIL import Image

    jpegs = list(pictures(16, 384))
    held = []
    count = 0

    def unit():
        nonlocal count
        text, index = records()
        image = numpy.asarray(Image.open(io.BytesIO(jpegs[count % len(jpegs)])).convert("RGB"))
        scaled = image.astype(numpy.float32) / 255.0
        held.append((text, (scaled * scaled).sum(axis=2), index["item 7"]))
        del held[:-32]
        count += 1

    return unit


# ---- the training ----


class Images:
    """JPEGs, decoded to tensors by a loader worker as in most training jobs."""

    def __init__(self, count):
        self.jpegs = list(pictures(count, SIDE))

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        import numpy
        import torch
        from PIL import Image

        image = numpy.array(Image.open(io.BytesIO(self.jpegs[i % len(self.jpegs)])).convert("RGB"))
        return torch.from_numpy(image).permute(2, 0, 1).float().div_(255.0), i % 10


def make_train(workers=1):
    import torch
    from torch import nn

    torch.manual_seed(7)
    torch.set_num_threads(1)
    layers = []
    for inside, outside in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (SIDE // 8) ** 2, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Images(256), batch_size=BATCH, num_workers=workers)
    batches = iter(loader)

    def unit():
        images, labels = next(batches)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return unit


def make(name, workers=1):
    return {"loop": make_loop, "objects": lambda: records, "train": lambda: make_train(workers)}[name]()


# ---- memory ----


def profiler_bytes(pid):
    """Returns the resident bytes of the profiler's library and of its heap table in process PID, from the process's
    mappings."""
    total, end, counts = 0, None, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)", line)
            if found:
                ours = "libebb-heap.so" in found[3] or "memfd:ebb-heap" in found[3]
                # The .bss mapping of the library has no name.
                counts = ours or (end == found[1] and not found[3])
                end = found[2] if "libebb-heap.so" in found[3] else None
            elif counts and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def status_bytes(pid, key):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def nap(pipe):
    pipe.recv()


def watch():
    """Returns the profiler's memory in this process, in its loader workers, in an idle forked child, and in an idle new
    Python process."""
    workers = children()
    here, there = multiprocessing.get_context("fork").Pipe()
    forked = multiprocessing.get_context("fork").Process(target=nap, args=(there,))
    forked.start()
    fresh = subprocess.Popen([sys.executable, "-c", "import json, logging, numpy; input()"], stdin=subprocess.PIPE)
    time.sleep(4)
    found = {"self": profiler_bytes("self"), "worker": max(map(profiler_bytes, workers), default=None),
             "forked": profiler_bytes(forked.pid), "fresh": profiler_bytes(fresh.pid)}
    here.send(None)
    forked.join()
    fresh.communicate(b"\n")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("loop", "objects", "train"))
    parser.add_argument("--units", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1, help="of the DataLoader; 0: this process decodes")
    parser.add_argument("--report")
    parser.add_argument("--watch", action="store_true")
    arguments = parser.parse_args()
    unit = make(arguments.name, arguments.workers)
    for _ in range(WARM_UP_UNITS):
        unit()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(arguments.units):
        unit()
    found = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu,
             "peak_bytes": status_bytes("self", "VmHWM")}
    if arguments.watch:
        found["profiler_bytes"] = watch()
    if arguments.report:
        with open(arguments.report, "w", encoding="ascii") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
