"""Loads a corpus for some seconds, and then trains on batches of varying size. --history keeps predictions in a local
variable of main()."""
import time

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

SHARDS, STEPS, PER_EPOCH = (4, 8, 4) if TINY else (36, 168, 42)
SHARD = 1_400_000  # number of values of four bytes in each shard of the corpus
CLASSES = 512


def read_corpus():
    shards = []
    for i in range(SHARDS):
        shards.append(np.random.default_rng(i).integers(0, 8000, SHARD, dtype=np.int32))
        time.sleep(0.01 if TINY else 0.15)
    return shards


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    rng, corpus = np.random.default_rng(8), read_corpus()
    model = nn.Sequential(nn.Embedding(8000, 48), nn.Linear(48, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ebb, tally, history = marks(), Tally(0.19), []
    for n in range(1, STEPS + 1):
        length = int(rng.integers(400, 2400))
        at = int(rng.integers(0, SHARD - length - 1))
        ids = torch.from_numpy(corpus[n % SHARDS][at:at + length + 1].astype(np.int64))
        logits = model(ids[:-1])
        loss = nn.functional.cross_entropy(logits, ids[1:] % CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if flag("--history"):
            history.append(logits[:128].detach().softmax(1).numpy())
        kept = sum(a.nbytes for a in history)
        tally.step(n, SHARDS * SHARD * 4 + kept)
        ebb.step(n, epoch=n / PER_EPOCH, steps_per_epoch=PER_EPOCH)
        if n % PER_EPOCH == 0:
            print(f"step {n}: loss {loss.item():.3f}", flush=True)
    tally.end()


if __name__ == "__main__":
    main()
