#!/usr/bin/env python3
"""Measures the cost of ebb.data per step compared with a list of opened PIL images, and the memory it saves.

    python bench/py/lazy_images.py [--images 64] [--side 1024] [--batch 8] [--epochs 3] [--rounds 3]

Each variant runs in its own process, in turn, for several rounds, and the median is printed. A step consists only of
work on the images: decode, resize to 224, convert to bytes. Its time is CPU time, which other programs disturb least.
The order of images differs in each epoch, as in training.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

WAYS = ("list", "budget of all", "budget of a quarter", "no budget", "keep_nothing")


def status_bytes(key):
    with open("/proc/self/status") as file:
        return int(file.read().split(key + ":")[1].split()[0]) << 10


def collate(examples):
    return [image.resize((224, 224)).tobytes() for image in examples]


def measure(way, batch, epochs, side, paths):
    """Measures one variant in this process: CPU seconds per step in the first epoch and in later ones, and memory
    growth."""
    from PIL import Image

    from ebb.data import LazyImages, keep_nothing

    make = collate
    everything = len(paths) * side * side * 4
    budget = {"budget of all": everything, "budget of a quarter": everything // 4, "no budget": 0}.get(way)
    if budget is None:
        images = [Image.open(path) for path in paths]
    else:
        images = LazyImages(paths, budget=budget)
    if way == "keep_nothing":
        make = keep_nothing(collate)
    collate([Image.open(paths[0])])
    before = status_bytes("VmRSS")
    seconds, order = [], list(range(len(paths)))
    shuffle = random.Random(7).shuffle
    for _ in range(epochs):
        shuffle(order)
        start = time.process_time()
        for n in range(0, len(paths), batch):
            make([images[k] for k in order[n:n + batch]])
        seconds.append((time.process_time() - start) / -(-len(paths) // batch))
    return {"first": seconds[0], "later": statistics.median(seconds[1:]),
            "rise": status_bytes("VmHWM") - before}


def write_images(folder, count, side):
    from PIL import Image

    paths = []
    for n in range(count):
        paths.append(os.path.join(folder, f"{n}.jpg"))
        Image.effect_noise((side // 8, side // 8), 60 + n % 40).convert("RGB").resize((side, side)).save(paths[-1])
    return paths


def in_process(way, arguments, paths):
    command = [sys.executable, __file__, "--measure", way, "--batch", arguments.batch,
               "--epochs", arguments.epochs, "--side", arguments.side, *paths]
    return json.loads(subprocess.check_output(list(map(str, command))))


def compare(arguments):
    with tempfile.TemporaryDirectory() as folder:
        paths = write_images(folder, arguments.images, arguments.side)
        rounds = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                rounds[way].append(in_process(way, arguments, paths))
    of_list = {key: statistics.median(r[key] for r in rounds["list"]) for key in ("first", "later")}
    print(f"{arguments.images} images of {arguments.side}×{arguments.side}, {arguments.batch}/step, "
          f"{arguments.epochs} epochs, {arguments.rounds} rounds")
    print(f"{'':20} {'first epoch':>20} {'later epochs':>20} {'rise':>9}")
    for way in WAYS:
        row = {key: statistics.median(r[key] for r in rounds[way]) for key in ("first", "later", "rise")}
        cells = [f"{row[key] * 1000:7.1f} ms ×{row[key] / of_list[key]:<8.2f}" for key in ("first", "later")]
        print(f"{way:20} {cells[0]:>20} {cells[1]:>20} {row['rise'] / 2**20:5.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.batch, arguments.epochs, arguments.side,
                                 arguments.paths)))
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
