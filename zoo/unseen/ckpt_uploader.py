"""Checkpoints are copied to a staging buffer and handed to an uploader thread. The script itself sends marks
for steps and checkpoints. The uploader keeps the sent checkpoints for a possible retry; with `--drop` it frees
them.
"""

import argparse
import json
import os
import pickle
import queue
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn

try:
    import ebb
except ImportError:
    ebb = None
if os.environ.get("HELD_NO_MARKS"):
    ebb = None

WIDTH, STEPS, EPOCHS, SAVE_EVERY, STEP_S = 480, 120, 5, 24, 0.06


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Uploader(threading.Thread):
    def __init__(self, path, drop):
        super().__init__(daemon=True)
        self.path, self.drop = path, drop
        self.waiting, self.sent = queue.Queue(), []

    def stage(self, step, model, optimizer):
        """Sends the uploader a copy of weights and moments, which further training does not change."""
        arrays = {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
        for number, state in enumerate(optimizer.state.values()):
            for key in ("exp_avg", "exp_avg_sq"):
                arrays[f"{number}.{key}"] = state[key].numpy().copy()
        self.waiting.put((step, arrays))

    def run(self):
        while True:
            item = self.waiting.get()
            if item is None:
                return
            with open(self.path, "wb") as out:
                pickle.dump(item, out, protocol=5)
            if not self.drop:
                self.sent.append(item)
            del item

    def held(self):
        return sum(array.nbytes for _, arrays in list(self.sent) for array in arrays.values())


def train(model, uploader, steps, step_s):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rows = []
    for epoch in range(EPOCHS):
        for _ in range(steps):
            began = time.monotonic()
            x = torch.randn(16, WIDTH)
            loss = ((model(x) - x.roll(1, 1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0, began + step_s - time.monotonic()))
            n = len(rows) + 1
            if ebb:
                ebb.step(n, epoch=n / steps, steps_per_epoch=steps)
            if n % SAVE_EVERY == 0:
                uploader.stage(n, model, optimizer)
                if ebb:
                    ebb.mark("save", step=n)
            rows.append((n, uploader.held(), resident()))
        print(f"epoch {epoch} loss {loss.item():.4f}")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
                          nn.Linear(WIDTH, WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        uploader = Uploader(os.path.join(folder, "checkpoint.pkl"), args.drop)
        uploader.start()
        start = time.monotonic()
        rows = train(model, uploader, 12 if args.tiny else STEPS, 0 if args.tiny else STEP_S)
        seconds = time.monotonic() - start
        uploader.waiting.put(None)
        uploader.join()
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": seconds, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
