"""Two workers read events from a database. Each worker opens a new connection for every 16 items and keeps the old
connections in a list, each with its page cache. --close closes them. (graphnet #787, cpython #123739)"""
import os
import sqlite3
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (4, 50, 8)
ROWS, FLOATS, PER_ITEM, LEASE = (400 if TINY else 6000), 2048, 8, 16
PAGES = 3  # a row of 8 kB and its header need three pages of 4 kB


def fill(path):
    rng = np.random.default_rng(1)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, pulses BLOB)")
    database.executemany("INSERT INTO event VALUES (?, ?)",
                         ((i, rng.random(FLOATS, dtype=np.float32).tobytes()) for i in range(ROWS)))
    database.commit()
    database.close()


class Events(Dataset):
    def __init__(self, path, close):
        self.path, self.close, self.opened, self.items = path, close, [], 0

    def __len__(self):
        return STEPS * BATCH

    def connection(self):
        if self.items % LEASE == 0:
            if self.close and self.opened:
                self.opened.pop().close()
            self.opened.append(sqlite3.connect(self.path))
        self.items += 1
        return self.opened[-1]

    def read(self, database, i):
        first = i * 37 % (ROWS - PER_ITEM)
        query = "SELECT pulses FROM event WHERE id >= ? AND id < ?"
        return database.execute(query, (first, first + PER_ITEM)).fetchall()

    def __getitem__(self, i):
        pulses = [np.frombuffer(row[0], np.float32) for row in self.read(self.connection(), i)]
        return torch.from_numpy(np.stack(pulses)), i % 2


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv1d(PER_ITEM, 80, 9, padding=4), nn.ReLU(), nn.Conv1d(80, 80, 9, padding=4), nn.ReLU(),
                        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(80, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events.db")
        fill(path)
        events, tally, n = Events(path, flag("--close")), Tally(0), 0
        loader = DataLoader(events, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
        for _ in range(EPOCHS):
            for pulses, labels in loader:
                loss = nn.functional.cross_entropy(net(pulses), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                n += 1
                tally.step(n, 0 if events.close else n * BATCH * PER_ITEM * PAGES * 4096)
        tally.end()


if __name__ == "__main__":
    main()
