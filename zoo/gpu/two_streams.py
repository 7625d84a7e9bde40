"""Batches are copied ahead on a separate stream. Each copy should be kept until its event shows that it is complete.
The test for this is inverted, so complete copies are never released; --fixed corrects the test."""
import torch
from torch import nn

from kit import CUDA, DEVICE, EPOCHS, FIXED, TINY, Items, Tally

BATCH, WIDTH = (4, 64) if TINY else (512, 2048)


class Ahead:
    """Yields batches on the device. Each is copied while the previous one is still in use."""
    in_flight = []  # kept between epochs, because a copy may still be in progress when an epoch ends

    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream() if CUDA else None

    def fetch(self):
        batch = next(self.loader, None)
        if batch is None or not CUDA:
            return batch, None
        with torch.cuda.stream(self.stream):
            batch = [part.to(DEVICE, non_blocking=True) for part in batch]
            done = torch.cuda.Event()
            done.record()
        return batch, done

    def hold(self, batch, done):
        torch.cuda.current_stream().wait_event(done)
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        self.in_flight.append((batch, done))
        self.in_flight[:] = [(b, d) for b, d in self.in_flight if d.query() != FIXED]

    def __iter__(self):
        batch, done = self.fetch()
        while batch is not None:
            if CUDA:
                self.hold(batch, done)
            following = self.fetch()
            yield batch
            batch, done = following


def main():
    net = nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    rows = torch.randn(64, WIDTH)
    data = Items(BATCH, lambda i: (rows[i % 64], i % 10))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, pin_memory=CUDA)
    tally, step = Tally(), 0
    for _ in range(EPOCHS):
        for x, y in Ahead(loader):
            opt.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            opt.step()
            step += 1
            tally.step(step)
    tally.end()


if __name__ == "__main__":
    main()
