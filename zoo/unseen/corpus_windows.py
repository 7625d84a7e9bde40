"""A small language model trains on windows of a mapped token file, with steps of 20 ms and without a loader. The start
of each window of an epoch is remembered. `--windows` keeps the windows themselves, for all epochs.
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

VOCABULARY, WINDOW, BATCH, STEPS, EPOCHS, STEP_S = 4000, 2400, 64, 420, 4, 0.02


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def write_corpus(path, windows):
    rng = np.random.default_rng(0)
    with open(path, "wb") as out:
        for _ in range(windows):
            out.write(rng.integers(0, VOCABULARY, WINDOW, dtype=np.uint16).tobytes())


class Windows:
    def __init__(self, path, keep):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.keep, self.used = keep, []

    def order(self, rng):
        count = len(self.tokens) // WINDOW
        return rng.permutation(count).reshape(-1, BATCH)

    def read(self, numbers):
        rows = np.stack([self.tokens[n * WINDOW:(n + 1) * WINDOW] for n in numbers])
        self.used.append(rows if self.keep else numbers)
        return torch.from_numpy(rows[:, ::300].astype(np.int64))


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 24)
        self.out = nn.Linear(24, 64)

    def forward(self, tokens):
        logits = self.out(self.embed(tokens[:, :-1]))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten() % 64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "corpus.bin")
        write_corpus(path, BATCH * (6 if args.tiny else STEPS))
        windows, model = Windows(path, args.windows), Bigram()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows, start = [], time.monotonic()
        for epoch in range(EPOCHS):
            for numbers in windows.order(rng):
                began = time.monotonic()
                loss = model(windows.read(numbers))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if not args.tiny:
                    time.sleep(max(0, began + STEP_S - time.monotonic()))
                kept = len(windows.used) * windows.used[-1].nbytes
                rows.append((len(rows) + 1, kept, resident()))
            if not windows.keep:
                windows.used.clear()
            print(f"epoch {epoch} loss {loss.item():.3f}")
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
