"""A reader retries damaged records and raises each error `from` the previous one, so the last error keeps all earlier
ones alive, with their frames and raw records. With --from-none the errors are not chained."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (3, 60, 8)
RECORD, BAD = 160_000, 3  # bytes per record; every third step has a damaged record


class Damaged(Exception):
    pass


class Records(Dataset):
    def __init__(self, alone):
        self.alone, self.last, self.lost = alone, None, 0

    def __len__(self):
        return STEPS * BATCH

    def decode(self, i, raw, attempt):
        copy = bytes(raw)  # the frame keeps this record alive
        if i % (BAD * BATCH) == 0 and attempt < 2:
            self.lost = 3 * RECORD if self.alone else self.lost + 2 * RECORD + attempt * RECORD
            raise Damaged(f"record {i}, attempt {attempt}") from (None if self.alone else self.last)
        return np.frombuffer(copy, np.uint8)[:1024].astype(np.float32) / 255

    def __getitem__(self, i):
        for attempt in range(3):
            raw = np.random.default_rng(i * 3 + attempt).integers(0, 255, RECORD, dtype=np.uint8)
            try:
                return self.decode(i, raw, attempt), i % 4
            except Damaged as error:
                self.last = error
        raise RuntimeError("never")


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    records = Records(flag("--from-none"))
    net = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer, tally, n = torch.optim.Adam(net.parameters(), lr=1e-3), Tally(0.22), 0
    for _ in range(EPOCHS):
        for x, y in DataLoader(records, batch_size=BATCH):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            tally.step(n, records.lost)
    tally.end()


if __name__ == "__main__":
    main()
