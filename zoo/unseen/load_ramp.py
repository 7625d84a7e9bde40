"""A service whose load grows in the first half of the run: 140 clients connect one after another, and each has a
buffer. Later, clients disconnect and new ones connect. --keep keeps the buffers of disconnected clients. Uses only
numpy; there are no steps. (deepstream.io #648)"""
import random

import numpy as np

from tally import TINY, Tally, flag

TICKS, CLIENTS, WIDTH = (12, 4, 100) if TINY else (420, 140, 30_000)


class Hub:
    def __init__(self, keep):
        self.keep, self.clients, self.left, self.number = keep, {}, [], 0

    def connect(self):
        self.number += 1
        self.clients[self.number] = np.random.default_rng(self.number).random(WIDTH)

    def leave(self, number):
        client = self.clients.pop(number)
        if self.keep:
            self.left.append(client)

    def publish(self):
        return sum(float(np.tanh(buffer[:2000]).sum()) for buffer in self.clients.values())


def main():
    hub, tally, source = Hub(flag("--keep")), Tally(0.1), random.Random(5)
    for tick in range(1, TICKS + 1):
        if len(hub.clients) < CLIENTS * min(1, 2 * tick / TICKS):
            hub.connect()
        if tick % 2 and len(hub.clients) > 1:
            hub.leave(source.choice(list(hub.clients)))
            hub.connect()
        hub.publish()
        tally.step(tick, (len(hub.clients) + len(hub.left)) * WIDTH * 8)
    tally.end()


if __name__ == "__main__":
    main()
