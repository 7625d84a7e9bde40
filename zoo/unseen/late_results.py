"""An asyncio service without steps segments pictures in small batches. Clients fetch their results later; one client
in six never does, and a sweep removes results that nobody has used for eight seconds. With --touch the sweep reads each entry by a
method that also counts as a use of it, so no entry expires. (docling-serve #185, libstorage #225)"""
import asyncio
import random
import time

import torch
from torch import nn

from tally import TINY, Tally, flag

TICKS, EACH, SIDE, CLASSES = (8, 3, 16, 4) if TINY else (215, 12, 48, 8)
ROOM = 4  # number of pictures in a batch
EXPIRY = 0.2 if TINY else 8.0  # seconds after which an unused result is removed


class Results:
    """Stores masks until clients fetch them."""

    def __init__(self, touch):
        self.touch, self.masks, self.used = touch, {}, {}

    def put(self, number, mask):
        self.masks[number], self.used[number] = mask, time.monotonic()

    def get(self, number):
        self.used[number] = time.monotonic()
        return self.masks[number], self.used[number]

    def take(self, number):
        del self.used[number]
        return self.masks.pop(number)

    def sweep(self):
        now = time.monotonic()
        for number in list(self.masks):
            used = self.get(number)[1] if self.touch else self.used[number]
            if now - used > EXPIRY:
                self.take(number)

    def nbytes(self):
        return sum(mask.nbytes for mask in self.masks.values())


class Segmenter:
    """Collects requests for a few milliseconds and runs them as one batch."""

    def __init__(self, results):
        self.net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(24, CLASSES, 1)).eval()
        self.results, self.waiting, self.numbers = results, asyncio.Queue(), 0
        self.batch = torch.zeros(ROOM, 3, SIDE, SIDE)

    async def submit(self, picture):
        self.numbers += 1
        await self.waiting.put((self.numbers, picture))
        return self.numbers

    async def run(self):
        while True:
            requests = [await self.waiting.get()]
            await asyncio.sleep(0.01)
            while not self.waiting.empty():
                requests.append(self.waiting.get_nowait())
            self.infer(requests)

    def infer(self, requests):
        """Runs the network on batches of one size, which are filled up with empty pictures."""
        for at in range(0, len(requests), ROOM):
            part = requests[at:at + ROOM]
            self.batch.zero_()
            for i, (_, picture) in enumerate(part):
                self.batch[i] = picture
            with torch.inference_mode():
                masks = self.net(self.batch).softmax(1)
            for (number, _), mask in zip(part, masks):
                self.results.put(number, mask.clone())


async def client(server, results, leaves):
    number = await server.submit(torch.rand(3, SIDE, SIDE))
    if leaves:
        return 0
    while number not in results.masks:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    return int(results.take(number).argmax(0).sum())


async def sweeper(results):
    while True:
        await asyncio.sleep(EXPIRY / 8)
        results.sweep()


async def serve(tally):
    draws, results = random.Random(31), Results(flag("--touch"))
    server = Segmenter(results)
    tasks = [asyncio.create_task(server.run()), asyncio.create_task(sweeper(results))]
    for n in range(1, TICKS + 1):
        await asyncio.gather(*(client(server, results, draws.random() < 1 / 6) for _ in range(EACH)))
        began = time.monotonic()
        await asyncio.sleep(max(0, tally.last + tally.pace_s - began - 0.002))
        tally.step(n, results.nbytes())
    for task in tasks:
        task.cancel()


def main():
    torch.manual_seed(31)
    torch.set_num_threads(1)
    tally = Tally(0.21)
    asyncio.run(serve(tally))
    tally.end()


if __name__ == "__main__":
    main()
