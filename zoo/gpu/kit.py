"""Shared by the programs of zoo/gpu: the device, the pace, the programs' own count of GPU memory, and the last line of
their output. Nothing in this module allocates on the GPU."""
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_DISABLED", "true")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

TINY = "--tiny" in sys.argv
FIXED = "--fixed" in sys.argv
CUDA = torch.cuda.is_available()
if not CUDA and not TINY:
    print("cannot run here: no GPU (--tiny runs without)", flush=True)
    sys.exit(77)
DEVICE = torch.device("cuda" if CUDA else "cpu")
EPOCHS, STEPS = (2, 4) if TINY else (6, 60)
STEP_S = 0 if TINY else 0.06
torch.set_num_threads(1)
torch.manual_seed(21)


class Items(torch.utils.data.Dataset):
    """A data set of STEPS batches with BATCH items each. MAKE(index) makes an item."""

    def __init__(self, batch, make):
        self.batch, self.make = batch, make

    def __len__(self):
        return STEPS * self.batch

    def __getitem__(self, i):
        return self.make(i)


class Tally:
    """Delays a loop to STEP_S seconds per step, and records (step, allocated bytes) at the end of each step."""

    def __init__(self):
        self.rows, self.began, self.next = [], time.monotonic(), None

    def step(self, n):
        allocated = torch.cuda.memory_allocated() if CUDA else 0
        self.rows.append((n, allocated))
        now = time.monotonic()
        if self.next is None or now > self.next + 3 * STEP_S:
            self.next = now
        self.next += STEP_S
        if self.next > now:
            time.sleep(self.next - now)

    def end(self):
        half = self.rows[len(self.rows) // 2:]
        grown = (half[-1][1] - half[0][1]) / max(1, half[-1][0] - half[0][0])
        print("GPU " + json.dumps({"steps": self.rows[-1][0], "bytes_per_step": round(grown),
                                   "allocated": [b for _, b in self.rows[::10]],
                                   "reserved": torch.cuda.memory_reserved() if CUDA else 0,
                                   "seconds": round(time.monotonic() - self.began, 1)}), flush=True)
