"""An embedding table grows with the vocabulary, by one block of rows at a time; all words have occurred by the end of
the first epoch. With --typos, augmentation creates words that never recur.
"""
import numpy as np
import kit
opt = kit.options("--typos")
torch = kit.torch_cpu()
from torch import nn
import torch.nn.functional as F
EPOCHS, STEPS, BATCH, DIM, BLOCK = (2, 5, 16, 300, 2048) if opt.tiny else (4, 40, 16, 300, 2048)
ledger, pace = kit.Ledger(), kit.Pace(0.21, opt.tiny)


class Documents(torch.utils.data.Dataset):
    def __init__(self):
        rng = np.random.default_rng(8)
        self.words = rng.integers(0, 60_000, (STEPS * BATCH, 100))
        self.rng = np.random.default_rng(88)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        w = self.words[i].copy()
        if opt.twin:
            w[self.rng.choice(100, 50, replace=False)] = self.rng.integers(10**6, 2**60, 50)
        return w


class GrowingTable:
    def __init__(self):
        self.index = {}
        self.weight = nn.Parameter(torch.randn(BLOCK, DIM))
        self.sgd = torch.optim.SGD([self.weight], lr=0.1)

    def rows(self, words):
        ids = [self.index.setdefault(int(w), len(self.index)) for w in words.ravel()]
        while len(self.index) > len(self.weight):
            self.grow()
        return torch.tensor(ids).view(words.shape)

    def grow(self):
        more = torch.cat([self.weight.data, torch.randn(BLOCK, DIM)])
        self.weight = nn.Parameter(more)
        self.sgd.param_groups[0]["params"] = [self.weight]
        self.sgd.state.clear()


def collate(batch):
    return np.stack(batch)


table, n, docs = GrowingTable(), 0, Documents()
loader = torch.utils.data.DataLoader(docs, batch_size=BATCH, shuffle=True, collate_fn=collate)
for epoch in range(EPOCHS):
    for words in loader:
        v = F.embedding(table.rows(words), table.weight, sparse=True)
        loss = (v.mean(1).pow(2).sum(1) - 1).pow(2).mean()
        table.sgd.zero_grad(set_to_none=True)
        loss.backward()
        table.sgd.step()
        n += 1
        pace.tick()
        if n == 1 or n % STEPS == 0:
            ledger.note(n, table.weight.nbytes)
ledger.close(EPOCHS, STEPS)
