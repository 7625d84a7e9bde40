"""Two ranks, started by torch.multiprocessing.spawn, train one model in shared memory without locks. Rank 1 writes a
journal and keeps the embeddings of every step in it; with --flush it writes them to disk every 10 steps."""
import torch
import torch.multiprocessing as processes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 16) if TINY else (3, 58, 32)
WIDTH, EMBEDDING = 128, 4096


def make():
    return nn.Sequential(nn.Linear(WIDTH, EMBEDDING), nn.Tanh(), nn.Linear(EMBEDDING, 3))


class Journal:
    def __init__(self, flush):
        self.flush, self.embeddings, self.written = flush, [], 0.0

    def write(self, embedding):
        self.embeddings.append(embedding.detach().clone())
        if self.flush and len(self.embeddings) == 10:
            self.written += sum(float(e.mean()) for e in self.embeddings)
            self.embeddings.clear()

    def held(self):
        return sum(e.nbytes for e in self.embeddings)


def train(rank, model, flush):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    rows = STEPS * BATCH
    data = TensorDataset(torch.randn(rows, WIDTH), torch.randint(0, 3, (rows,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    journal, tally, n = Journal(flush) if rank == 1 else None, Tally(0.22), 0
    for _ in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            embedding = model[1](model[0](x))
            loss = nn.functional.cross_entropy(model[2](embedding), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if journal:
                journal.write(embedding)
            n += 1
            tally.step(n, journal.held() if journal else 0)
    if rank == 1:
        tally.end()


def main():
    torch.manual_seed(0)
    model = make()
    model.share_memory()
    processes.spawn(train, args=(model, flag("--flush")), nprocs=2)


if __name__ == "__main__":
    main()
