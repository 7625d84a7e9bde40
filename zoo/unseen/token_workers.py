"""Two loader workers read a list of Python objects and tokenize parts of them. With `--memo` the workers cache the
token counts of each part by its start position, which is random each time."""

import argparse
import json
import random
import time

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, BATCH, STEPS, EPOCHS, STEP_S = 6000, 16, 64, 5, 0.11


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def letters(rng, count):
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(count)]


def make_tokenizer(words):
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator([" ".join(words)], trainer)
    return tokenizer


class Reviews(Dataset):
    def __init__(self, count, memo):
        rng = random.Random(0)
        words = letters(rng, 5000)
        self.tokenizer = make_tokenizer(words)
        self.records = [{"id": f"review-{number}", "stars": 1 + number % 5,
                         "words": [rng.choice(words) + "." for _ in range(900)]}
                        for number in range(count)]
        self.memo = {} if memo else None

    def __len__(self):
        return len(self.records)

    def counts(self, text):
        ids = self.tokenizer.encode(text).ids
        return np.bincount(np.minimum(ids, VOCABULARY - 1), minlength=VOCABULARY).astype(np.float64)

    def __getitem__(self, index):
        record = self.records[index]
        text = " ".join(record["words"])
        start = random.random() * 3000
        row = self.counts(text[int(start):int(start) + 2000])
        if self.memo is not None:
            self.memo[index, start] = row
        kept = 0 if self.memo is None else len(self.memo) * row.nbytes
        return row.astype(np.float32), record["stars"] - 1, kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memo", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    reviews = Reviews(BATCH * (6 if args.tiny else STEPS), args.memo)
    loader = DataLoader(reviews, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(VOCABULARY, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    rows, start = [], time.monotonic()
    for epoch in range(EPOCHS):
        for x, stars, kept in loader:
            began = time.monotonic()
            loss = nn.functional.cross_entropy(model(x), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not args.tiny:
                time.sleep(max(0, began + STEP_S - time.monotonic()))
            rows.append((len(rows) + 1, 2 * int(kept[-1]), resident()))
        print(f"epoch {epoch} loss {loss.item():.3f}")
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
