"""Each step passes its features to a scoring process in a block of shared memory. Both processes close the block, but
neither unlinks it, so it stays in /dev/shm although no process maps it. --unlink removes it. Does not use torch. (verl
#2938, pytorch #17499)"""
import multiprocessing
from multiprocessing import shared_memory

import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS = (4, 2) if TINY else (60, 3)
STEPS = PER_EPOCH * EPOCHS
SHAPE = (200, 512)  # of float32: 409,600 bytes
CASES, WIDTH = 2600, 512


def score(jobs, results):
    for name in iter(jobs.get, None):
        block = shared_memory.SharedMemory(name=name)
        features = np.ndarray(SHAPE, np.float32, buffer=block.buf)
        result = float(np.abs(features).mean())
        del features
        block.close()
        results.put(result)


class Exchange:
    def __init__(self, unlink):
        self.unlink, self.names = unlink, []
        self.jobs, self.results = multiprocessing.Queue(), multiprocessing.Queue()
        shared_memory.SharedMemory(create=True, size=16).unlink()  # starts the resource tracker before the fork
        self.scorer = multiprocessing.Process(target=score, args=(self.jobs, self.results), daemon=True)
        self.scorer.start()

    def send(self, features):
        block = shared_memory.SharedMemory(create=True, size=features.nbytes)
        np.ndarray(SHAPE, np.float32, buffer=block.buf)[:] = features
        self.jobs.put(block.name)
        result = self.results.get()
        block.close()
        if self.unlink:
            block.unlink()
        else:
            self.names.append(block.name)
        return result

    def close(self):
        self.jobs.put(None)
        self.scorer.join()
        for name in self.names:
            block = shared_memory.SharedMemory(name=name)
            block.close()
            block.unlink()


def main():
    rng, ebb, tally, exchange = np.random.default_rng(8), marks(), Tally(0), Exchange(flag("--unlink"))
    x = rng.standard_normal((CASES, WIDTH), dtype=np.float32)
    weights = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH
    try:
        for n in range(1, STEPS + 1):
            for _ in range(4):
                hidden = np.tanh(x @ weights)
                weights -= 1e-5 * (x.T @ ((hidden - x) * (1 - hidden * hidden)))
            exchange.send(hidden[:SHAPE[0]])
            tally.step(n, len(exchange.names) * SHAPE[0] * SHAPE[1] * 4)
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    finally:
        exchange.close()
    tally.end()


if __name__ == "__main__":
    main()
