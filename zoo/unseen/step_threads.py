"""Each step starts a thread, which computes statistics and then waits for an event that is never set, so its local
variables stay alive. --finish sets the event. Uses only numpy. (gridpot #1, ldproxy #89)"""
import threading

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, WIDTH = (2, 4, 100) if TINY else (4, 50, 40_000)


def summarise(batch, written):
    low, high = np.sort(batch)[:100], np.sort(batch)[-100:]
    spectrum = np.abs(np.fft.rfft(batch - low.mean() + high.mean()))
    written.wait()
    return spectrum


def main():
    ebb, tally, n = marks(), Tally(0.19), 0
    source, weights, finish = np.random.default_rng(3), np.zeros(WIDTH), flag("--finish")
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            batch, written = source.random(WIDTH), threading.Event()
            threading.Thread(target=summarise, args=(batch, written), daemon=True).start()
            weights += 0.01 * (batch - weights)
            if finish:
                written.set()
            n += 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, 0 if finish else n * WIDTH * 12)
    tally.end()


if __name__ == "__main__":
    main()
