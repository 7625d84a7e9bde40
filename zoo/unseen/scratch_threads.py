"""Six threads compute spectra. The scratch arrays of a thread fit the longest clip that the thread has processed so
far, so they grow less and less often. --silent also keeps the spectra of silent clips. Uses only numpy."""
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH = (6, 3) if TINY else (190, 38)
THREADS, LONGEST, BASE = 6, 700_000, 20_000_000
WINDOW = 1000


class Scratch(threading.local):
    wave = spectrum = None


class Features:
    def __init__(self, keep_silent):
        self.keep_silent, self.scratch, self.silent, self.sizes = keep_silent, Scratch(), [], {}

    def room(self, length):
        """Returns the arrays of this thread; reallocates them if they are too small."""
        mine = self.scratch
        if mine.wave is None or len(mine.wave) < length:
            mine.wave = mine.spectrum = None
            mine.wave = np.ones(length, np.float32)
            mine.spectrum = np.ones((length // WINDOW, WINDOW), np.float32)
            self.sizes[threading.get_ident()] = mine.wave.nbytes + mine.spectrum.nbytes
        return mine.wave[:length], mine.spectrum[:length // WINDOW]

    def extract(self, length, seed):
        rng = np.random.default_rng(seed)
        loud = 0.001 if seed % 11 == 0 else 1.0
        wave, spectrum = self.room(length)
        wave[:] = np.resize(rng.standard_normal(20_000, dtype=np.float32) * loud, length)
        np.multiply(wave.reshape(-1, WINDOW), np.hanning(WINDOW).astype(np.float32), out=spectrum)
        if loud < 0.01 and self.keep_silent:
            self.silent.append(np.abs(spectrum[:, ::2]))
        return np.abs(np.fft.rfft(spectrum[::16], axis=1)).mean(0)[:64]

    def live(self):
        return sum(self.sizes.values()) + sum(s.nbytes for s in self.silent)


def clip_lengths():
    """Returns clip lengths as in a real data set: most clips are short, and very long ones are cut."""
    drawn = np.random.default_rng(9).lognormal(11.6, 0.9, PER_EPOCH * THREADS)
    return [int(min(length, LONGEST)) // WINDOW * WINDOW + WINDOW for length in drawn]


def main():
    lengths, rng = clip_lengths(), np.random.default_rng(10)
    corpus = np.random.default_rng(11).random(BASE, dtype=np.float32)
    features, weights = Features(flag("--silent")), np.zeros(64)
    ebb, tally, order = marks(), Tally(0.18), []
    lanes = [ThreadPoolExecutor(1) for _ in range(THREADS)]
    for n in range(1, STEPS + 1):
        if (n - 1) % PER_EPOCH == 0:
            order = rng.permutation(len(lengths))
        chosen = order[(n - 1) % PER_EPOCH * THREADS:][:THREADS]
        jobs = [lane.submit(features.extract, lengths[i], int(i)) for lane, i in zip(lanes, chosen)]
        x = np.stack([job.result() for job in jobs])
        weights -= 1e-3 * x.T @ (x @ weights - corpus[n * THREADS:][:THREADS])
        tally.step(n, features.live())
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    for lane in lanes:
        lane.shutdown()
    tally.end()


if __name__ == "__main__":
    main()
