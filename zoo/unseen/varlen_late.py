"""Trains on batches of sentences of widely varying length, padded to the longest sentence of the batch. From the third
epoch on, one variant collects hard examples."""
import _held
run = _held.Run("varlen_late", "--mine", "keep features of hard batches from the third epoch on",
                total_steps=180, seconds=38)

import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
VOCAB, DIM = 40_000, 256


class Corpus(Dataset):
    def __init__(self, n):
        rng = random.Random(7)
        self.lengths = [min(1500, int(rng.paretovariate(1.1) * 12)) for _ in range(n)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(1, VOCAB, (self.lengths[i],), generator=g)
        return ids, i % 2


def collate(items):
    ids, labels = zip(*items)
    return pad_sequence(ids, batch_first=True), torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, sparse=True)
        self.mix = nn.Conv1d(DIM, 64, 3, padding=1)
        self.out = nn.Linear(64, 2)

    def forward(self, ids):
        x = self.embed(ids)
        h = torch.relu(self.mix(x.transpose(1, 2)))
        return self.out(h.mean(-1)), h


class HardExamples:
    def __init__(self):
        self.features = []

    def consider(self, batch_features, losses):
        k = losses.topk(3).indices
        picked = batch_features[k].detach()
        # resized to equal lengths, as the ranking requires
        self.features.append(nn.functional.interpolate(picked, size=run.n(1024)))

    def nbytes(self):
        return sum(f.nbytes for f in self.features)


def main():
    loader = DataLoader(Corpus(36 * 12), batch_size=12, shuffle=True, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    miner = HardExamples()
    for epoch in range(5):
        total = 0.0
        for ids, y in loader:
            logits, features = model(ids)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            total += losses.mean().item()
            if run.twin and epoch >= 2:
                miner.consider(features, losses.detach())
            run.pace(miner.nbytes())
        print(f"epoch {epoch + 1}: {total / len(loader):.4f}", flush=True)
    run.report(miner.nbytes())


main()
