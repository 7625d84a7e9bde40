"""A thread sends the features of each step to a collector. In the third of five epochs the collector stops answering,
and from then on the thread keeps in its queue all features that it cannot send. --newest keeps only those of the newest
ten steps. (tcollector #96, Diamond #329)"""
import collections
import io
import socket
import threading
import time

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, SIDE = (3, 4, 4, 16) if TINY else (5, 42, 12, 48)
OUTAGE = 2 * STEPS  # the step after which the collector stops
ROOM = 10


class Collector(threading.Thread):
    """Stands for a service on another machine."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server, self.stopped, self.received = socket.create_server(("127.0.0.1", 0)), threading.Event(), 0
        self.server.settimeout(0.1)
        self.address = self.server.getsockname()

    def run(self):
        while not self.stopped.is_set():
            try:
                connection, _ = self.server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                while connection.recv(65536):
                    pass
            self.received += 1
        self.server.close()


class Exporter(threading.Thread):
    def __init__(self, address, newest):
        super().__init__(daemon=True)
        self.address, self.queue, self.ended = address, collections.deque(maxlen=ROOM if newest else None), threading.Event()

    def add(self, step, features):
        """Packs the features of a step and adds them to the queue."""
        packed = io.BytesIO()
        np.savez(packed, step=step, features=features.numpy(), histogram=np.histogram(features.numpy(), 64)[0])
        self.queue.append(packed.getvalue())

    def run(self):
        while not self.ended.is_set():
            try:
                packed = self.queue.popleft()
            except IndexError:
                time.sleep(0.02)
                continue
            try:
                with socket.create_connection(self.address, 1) as connection:
                    connection.sendall(packed)
            except OSError:
                self.queue.append(packed)
                time.sleep(0.1)

    def nbytes(self):
        return sum(len(packed) for packed in list(self.queue))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 16, 3, 1, 1), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * 16, 6))

    def forward(self, pictures):
        features = self.body(pictures)
        return self.head(features), features.detach()


def main():
    torch.manual_seed(44)
    torch.set_num_threads(1)
    pictures = torch.rand(STEPS * BATCH, 3, SIDE, SIDE)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures, torch.arange(STEPS * BATCH) % 6),
                                         batch_size=BATCH, shuffle=True)
    collector = Collector()
    exporter = Exporter(collector.address, flag("--newest"))
    collector.start()
    exporter.start()
    net = Classifier()
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for batch, labels in loader:
            logits, features = net(batch)
            loss = nn.functional.cross_entropy(logits, labels)
            best.zero_grad()
            loss.backward()
            best.step()
            exporter.add(n, features[:BATCH // 2])
            n += 1
            if n == OUTAGE:
                collector.stopped.set()
            tally.step(n, exporter.nbytes())
    exporter.ended.set()
    exporter.join()
    print(f"{collector.received} steps received, {len(exporter.queue)} not sent")
    tally.end()


if __name__ == "__main__":
    main()
