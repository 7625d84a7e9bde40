"""A stream of documents. Each of two persistent workers has a shuffle buffer, which is full after one and a half
epochs. With --seen each worker also keeps all its documents, so that none is used twice."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS, ROOM = (4, 4, 3, 5) if TINY else (36, 8, 5, 100)
WORDS, HEAD = 30_000, 10_000  # number of words per document, and how many of them identify it


class Stream(IterableDataset):
    def __init__(self, remember):
        self.remember, self.buffer, self.seen, self.epoch = remember, [], set(), 0

    def __len__(self):
        return STEPS * BATCH

    def read(self, rng):
        return rng.integers(0, 20_000, WORDS, dtype=np.int32)

    def is_new(self, document):
        key = document[:HEAD].tobytes()
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def held(self):
        return sum(d.nbytes for d in self.buffer) + 4 * HEAD * len(self.seen)

    def __iter__(self):
        worker = get_worker_info()
        rng = np.random.default_rng([self.epoch, worker.id])
        self.epoch += 1
        for n in range(STEPS * BATCH // worker.num_workers):
            document = self.read(rng)
            if self.remember and not self.is_new(document):
                continue
            if len(self.buffer) < ROOM and n % 2:
                self.buffer.append(self.read(rng))
            if self.buffer:
                at = int(rng.integers(len(self.buffer)))
                document, self.buffer[at] = self.buffer[at], document
            yield torch.from_numpy(document[:512].astype(np.int64)), torch.tensor([worker.id, self.held()])


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    loader = DataLoader(Stream(flag("--seen")), batch_size=BATCH, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.EmbeddingBag(20_000, 48), nn.Linear(48, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tally, n, held = Tally(0.19), 0, {}
    for _ in range(EPOCHS):
        for ids, told in loader:
            loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            held[int(told[-1, 0])] = int(told[-1, 1])
            n += 1
            tally.step(n, sum(held.values()))
    tally.end()


if __name__ == "__main__":
    main()
