"""A background worker without steps, and without torch, takes pictures from a queue and writes their embeddings. It extends the
lease of a picture that takes long; the broker answers with a new receipt. The entry of the old receipt, with the message, stays
in the table of leases. --replace removes it. (google-cloud-python #5001, python-pubsub #273)"""
import concurrent.futures
import dataclasses
import threading
import time

import numpy as np

from tally import TINY, Tally, flag

TICKS, EACH, WORDS = (8, 3, 500) if TINY else (215, 8, 90_000)
SMALLEST, LARGEST = (2_000, 8_000) if TINY else (40_000, 200_000)


@dataclasses.dataclass
class Message:
    number: int
    data: bytes
    urgent: bool


class Broker:
    """Stands for a queue on another machine."""

    def __init__(self):
        self.rng, self.numbers, self.receipts = np.random.default_rng(32), 0, 0

    def pull(self, count):
        for _ in range(count):
            self.numbers += 1
            size = int(self.rng.integers(SMALLEST, LARGEST))
            yield self.receipt(), Message(self.numbers, self.rng.bytes(size), bool(self.rng.random() < 7 / 8))

    def receipt(self):
        self.receipts += 1
        return f"receipt-{self.receipts:08d}"


class Leases:
    """Maps each receipt to its message, for messages that were received but not yet acknowledged."""

    def __init__(self, broker, replace):
        self.broker, self.replace = broker, replace
        self.held, self.lock = {}, threading.Lock()

    def add(self, receipt, message):
        with self.lock:
            self.held[receipt] = (message, time.monotonic() + 10)

    def extend(self, receipt):
        """Returns the receipt of the extended lease."""
        with self.lock:
            message, until = self.held.pop(receipt) if self.replace else self.held[receipt]
            renewed = self.broker.receipt()
            self.held[renewed] = (message, until + 10)
        return renewed

    def acknowledge(self, receipt):
        with self.lock:
            del self.held[receipt]

    def nbytes(self):
        with self.lock:
            return sum(len(message.data) for message, _ in self.held.values())


class Worker:
    def __init__(self, leases):
        self.leases, self.written = leases, 0
        self.table = np.random.default_rng(33).standard_normal((WORDS, 256), dtype=np.float32)

    def handle(self, receipt, message):
        pixels = np.frombuffer(message.data, np.uint8)
        words = np.bincount(pixels.astype(np.int64) * 31 % 997, minlength=997).argsort()[-64:]
        embedding = self.table[words * 7 % WORDS].mean(0)
        if not message.urgent:
            receipt = self.leases.extend(receipt)
            embedding += self.table[:2000].mean(0)
        self.written += int(np.isfinite(embedding).all())
        self.leases.acknowledge(receipt)


def main():
    broker = Broker()
    leases = Leases(broker, flag("--replace"))
    worker, tally = Worker(leases), Tally(0.21)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for n in range(1, TICKS + 1):
            running = []
            for receipt, message in broker.pull(EACH):
                leases.add(receipt, message)
                running.append(pool.submit(worker.handle, receipt, message))
            for future in running:
                future.result()
            del running, message
            tally.step(n, leases.nbytes())
    print(f"{worker.written} embeddings written")
    tally.end()


if __name__ == "__main__":
    main()
