"""Checkpoints are written into one in-memory buffer and sent from there. The buffer is never rewound, so each
checkpoint is appended to the earlier ones. --rewind rewinds it before each checkpoint. There are two checkpoints per
epoch.
"""
import io
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS, EVERY = (4, 4, 2, 2) if TINY else (26, 16, 6, 13)
WIDTH = 640


class Sender:
    def __init__(self, rewind):
        self.rewind, self.buffer, self.sums = rewind, io.BytesIO(), []

    def save(self, model, optimizer):
        if self.rewind:
            self.buffer.seek(0)
            self.buffer.truncate()
        begin = self.buffer.tell()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, self.buffer)
        self.send(begin)

    def send(self, begin):
        with self.buffer.getbuffer() as view:
            self.sums.append(zlib.crc32(view[begin:]))

    def size(self):
        with self.buffer.getbuffer() as view:
            return view.nbytes


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(STEPS * BATCH, WIDTH), torch.randint(0, 10, (STEPS * BATCH,)))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sender, tally, n = Sender(flag("--rewind")), Tally(0.2), 0
    for _ in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            if n % EVERY == 0:
                sender.save(model, optimizer)
            tally.step(n, sender.size())
    tally.end()


if __name__ == "__main__":
    main()
