"""A process prepares batches in blocks of shared memory, and training uses them in place. A block cannot be closed while its
batch is still in use, so it is put aside and closed with the next batch. With --no-retry the blocks that were put aside stay in
their list and are never closed. There is no DataLoader. (numpy #23305, cpython #115635)"""
import multiprocessing
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, SIDE = (2, 4, 2, 16) if TINY else (5, 41, 12, 52)


def prepare(pipe, count):
    """Runs in the process that prepares batches."""
    draws, shape = np.random.default_rng(39), (BATCH, 3, SIDE, SIDE)
    for _ in range(count):
        labels = draws.integers(0, 5, BATCH)
        block = SharedMemory(create=True, size=int(np.prod(shape)) * 4)
        pictures = np.ndarray(shape, np.float32, buffer=block.buf)
        draws.random(out=pictures, dtype=np.float32)
        pictures += labels[:, None, None, None] / 5
        del pictures
        pipe.recv()
        pipe.send((block.name, shape, labels))
        block.close()


class Feed:
    def __init__(self, retry):
        resource_tracker.ensure_running()
        context = multiprocessing.get_context("fork")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=prepare, args=(there, EPOCHS * STEPS), daemon=True)
        self.process.start()
        self.retry, self.block, self.aside = retry, None, []

    def epoch(self):
        for _ in range(STEPS):
            self.pipe.send("next")
            name, shape, labels = self.pipe.recv()
            block = SharedMemory(name)
            block.unlink()
            self.release()
            self.block = block
            pictures = np.frombuffer(block.buf, np.float32, int(np.prod(shape))).reshape(shape)
            yield torch.from_numpy(pictures), torch.from_numpy(labels)

    def release(self):
        """Closes the block of the last batch, or puts it aside if its batch is still in use."""
        if self.retry:
            self.aside = [block for block in self.aside if not closed(block)]
        if self.block is not None and not closed(self.block):
            self.aside.append(self.block)

    def nbytes(self):
        return sum(block.size for block in self.aside)


def closed(block):
    try:
        block.close()
    except BufferError:
        return False
    return True


def main():
    torch.manual_seed(39)
    torch.set_num_threads(1)
    feed = Feed(not flag("--no-retry"))
    net = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
                        nn.Flatten(), nn.Linear(32 * 9, 5))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for pictures, labels in feed.epoch():
            loss = nn.functional.cross_entropy(net(pictures), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, feed.nbytes())
    feed.process.join()
    del pictures
    feed.release()
    tally.end()


if __name__ == "__main__":
    main()
