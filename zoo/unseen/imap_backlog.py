"""A pool of two processes augments images faster than training uses them, and imap keeps all finished results.
--semaphore limits the unused results to twelve. Uses only numpy; there are no epochs. (cpython #84291)"""
import multiprocessing
import threading
import time

import numpy as np

from tally import TINY, Tally, flag, marks

PACE_S = 0.19
STEPS, WIDTH = (6, 1000) if TINY else (210, 40_000)


def augment(seed):
    wave = np.random.default_rng(seed).random(WIDTH)
    return np.roll(wave, seed) + 0.1 * wave[::-1]


def seeds(room, is_over):
    for seed in range(20 * STEPS):
        room.acquire()
        if is_over.is_set():
            return
        yield seed


def feed(room):
    """Allows the pool to start three more tasks per training step."""
    while True:
        time.sleep(PACE_S / 3)
        room.release()


def main():
    ebb, tally, bounded = marks(), Tally(PACE_S), flag("--semaphore")
    room, is_over = threading.Semaphore(12), threading.Event()
    weights = np.zeros(WIDTH)
    with multiprocessing.Pool(2) as pool:
        if not bounded:
            threading.Thread(target=feed, args=(room,), daemon=True).start()
        for n, wave in enumerate(pool.imap(augment, seeds(room, is_over)), 1):
            weights += 0.01 * (wave - weights)
            if bounded:
                room.release()
            ebb.step(n)
            tally.step(n, 0 if bounded else 2 * n * WIDTH * 8)
            if n == STEPS:
                break
        is_over.set()
        room.release()
    tally.end()


if __name__ == "__main__":
    main()
