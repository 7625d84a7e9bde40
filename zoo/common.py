"""Shared by all programs: options, marks, pace, the count of live bytes, and training images."""

import argparse
import atexit
import contextlib
import ctypes
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import place

os.environ.setdefault("OMP_NUM_THREADS", "1")  # set before torch is imported

NOT_HERE = 77  # exit status if this machine lacks something that the program requires

APART_S = 0.05  # minimum time between marks of steps; faster steps are combined
TOLD_MAX = 256  # maximum number of steps in one mark
PATIENCE_S = 0.05

# Bytes per step are the same in runs of all sizes; only the number of steps and their pace differ.
SIZES = {
    "small": {"epochs": 4, "steps_per_epoch": 25, "seconds": 7},
    "default": {"epochs": 4, "steps_per_epoch": 75, "seconds": 45},
    "large": {"epochs": 6, "steps_per_epoch": 150, "seconds": 300},
}


class Marks:
    """Sends marks to the socket $EBB_SOCKET, if it is set."""

    def __init__(self):
        path = os.environ.get("EBB_SOCKET")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if path else None
        self.told = None  # a list of (step, time of its end)
        self.held = None  # a list of (step, epoch, time of its end)
        if self.sock:
            with contextlib.suppress(OSError):  # without a receiver, every send fails
                self.sock.connect(path)
            self.sock.setblocking(False)

    def send(self, kind, **keys):
        if not self.sock:
            return
        if self.held:
            self._tell(*self.held)
        self._deliver(kind, keys)

    def _deliver(self, kind, keys):
        text = f"KIND={kind}\n" + "".join(f"{k.upper()}={v}\n" for k, v in keys.items())
        with contextlib.suppress(OSError):  # without a receiver, the mark is lost
            try:
                self.sock.send(text.encode())
            except BlockingIOError:
                select.select([], [self.sock], [], PATIENCE_S)
                self.sock.send(text.encode())

    def step(self, step, epoch):
        """Reports a step. Steps in quick succession are combined into one mark, as docs/reference/marks.md requires."""
        if not self.sock:
            return
        now = time.monotonic()
        if self.told and now < self.told[1] + APART_S and step < self.told[0] + TOLD_MAX:
            self.held = step, epoch, now
        else:
            self._tell(step, epoch, now)

    def _tell(self, step, epoch, now):
        keys = {"step": step, "epoch": epoch}
        if self.told and step > self.told[0] + 1:
            keys.update(steps=step - self.told[0], seconds=round(now - self.told[1], 6))
        self.told, self.held = (step, now), None
        self._deliver("step", keys)


class Job:
    """One run: its length, its pace, its marks and its counts.

    FLAG is the option that selects the second variant ("--fixed" or "--leak"); `job.twin` is true if the option was
    given. A program calls `begin` first. After each step it calls `step` with its own count of live bytes; after an
    evaluation or a checkpoint it calls `evaluated` or `saved`; at the end it calls `end`.
    """

    def __init__(self, about, flag, flag_help):
        parser = argparse.ArgumentParser(description=about)
        parser.add_argument(flag, dest="twin", action="store_true", help=flag_help)
        parser.add_argument("--size", choices=SIZES, default="default")
        parser.add_argument("--seconds", type=float, help="spread the steps over this time")
        args = parser.parse_args()
        size = SIZES[args.size]
        self.twin = args.twin
        self.epochs = size["epochs"]
        self.steps_per_epoch = size["steps_per_epoch"]
        self.max_steps = self.epochs * self.steps_per_epoch
        self.seconds = size["seconds"] if args.seconds is None else args.seconds
        self.step_now = 0
        self.marks = Marks()
        path = os.environ.get("ZOO_COUNTS")
        self.counts = open(path, "w", buffering=1) if path else None
        self.cpu = []  # CPU seconds before the first step and at the end of each step
        self.folder = tempfile.mkdtemp(prefix="zoo-")
        atexit.register(self._clear, os.getpid())

    def begin(self, examples=None, batch=None):
        keys = {"steps_per_epoch": self.steps_per_epoch, "max_steps": self.max_steps}
        if examples is not None:
            keys["examples"] = examples
        if batch is not None:
            keys["effective_batch"] = batch
        self.started, self.cpu = time.monotonic(), [time.process_time()]
        self.marks.send("begin", step=0, **keys)

    def _where(self):
        return {"step": self.step_now, "epoch": round(self.step_now / self.steps_per_epoch, 6)}

    def step(self, live_bytes):
        """Ends a step after which LIVE_BYTES are live, and waits until the next step is due."""
        self.step_now += 1
        if self.counts:
            self.counts.write(json.dumps({"step": self.step_now, "live_bytes": live_bytes}) + "\n")
        self.marks.step(**self._where())
        if self.step_now % self.steps_per_epoch == 0:
            self.marks.send("epoch", **self._where())
        self.cpu.append(time.process_time())
        due = self.started + self.step_now * self.seconds / self.max_steps
        time.sleep(max(0.0, due - time.monotonic()))

    def evaluated(self):
        self.marks.send("eval", **self._where())

    def saved(self):
        self.marks.send("save", **self._where())

    def save(self, model):
        """Writes a checkpoint over the previous one."""
        import torch

        torch.save(model.state_dict(), os.path.join(self.folder, "checkpoint.pt"))
        self.saved()

    def end(self):
        self.marks.send("end", step=self.step_now)
        if path := os.environ.get("ZOO_TIMES"):
            Path(path).write_text(json.dumps({"cpu_s": self.cpu, "wall_s": time.monotonic() - self.started}))
        if self.counts:
            self.counts.close()
        self._clear(os.getpid())

    def _clear(self, owner):
        if os.getpid() == owner:  # a forked child must exit before its parent
            shutil.rmtree(self.folder, ignore_errors=True)


def settle():
    """Uses a single thread and fixed seeds, so that all runs are the same."""
    import numpy
    import torch

    torch.set_num_threads(1)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def not_here(why):
    """Prints the reason WHY this machine cannot run the program, and exits with the status NOT_HERE."""
    print(f"zoo: not here: {why}", file=sys.stderr)
    sys.exit(NOT_HERE)


def shared_library(source):
    """Loads a C file as a library, and compiles it into zoo-lib of the build folder first if necessary."""
    folder = place.BUILD / "zoo-lib"
    target = folder / f"{source.parent.name}.so"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        fresh = target.with_suffix(f".{os.getpid()}")
        command = ["cc", "-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-o", fresh, source]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            not_here(f"cc cannot compile {source.name}: {error}")
        fresh.rename(target)  # replaced atomically, because another run may be loading the old file
    return ctypes.CDLL(str(target))


def write_pictures(folder, count, side):
    """Creates COUNT JPEG files of SIDE x SIDE pixels; returns their paths."""
    from PIL import Image

    paths = []
    for i in range(count):
        coarse = Image.effect_noise((24, 24), 40 + i % 60).convert("RGB")
        paths.append(os.path.join(folder, f"{i:05}.jpg"))
        coarse.resize((side, side)).save(paths[-1], quality=85)
    return paths


def picture_bytes(image):
    """Returns the memory of a Pillow RGB image in bytes: four per pixel, or 0 before it is decoded."""
    return 4 * image.width * image.height if getattr(image, "_im", None) is not None else 0


def picture_model():
    """Returns a small classifier for 3 x 96 x 96 images."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    )


def picture_tensor(image):
    """Converts an image of any size to 3 x 96 x 96 floats."""
    import numpy
    import torch

    small = numpy.asarray(image.resize((96, 96)), dtype=numpy.float32) / 255
    return torch.from_numpy(small).permute(2, 0, 1)


if __name__ == "__main__":  # run by zoo/setup.sh, so that programs need not compile their libraries
    for source in sorted(Path(__file__).parent.glob("*/*.c")):
        shared_library(source)
