"""Each step cleans texts with a new regular expression, which C's regcomp compiles to about 0.29 MB and which is never
freed. --free calls regfree. Does not use torch. (libarchive #1804, dracut #2573)"""
import ctypes
import random
from collections import Counter

import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (2, 4) if TINY else (5, 41)
TEXTS, WORDS, BLOCKED, TABLE = 12, 3000, 20, ((3000, 2000) if TINY else (3000, 24_000))
RULE = 293_000  # bytes of a regular expression after one step, measured in isolation
libc = ctypes.CDLL(None)


class Rule:
    """A regular expression compiled by the C library."""

    def __init__(self, words):
        self.compiled = ctypes.create_string_buffer(64)
        pattern = f"(^|[^a-z])({'|'.join(words)})([^a-z]|$)".encode()
        if libc.regcomp(self.compiled, pattern, 1):
            raise ValueError(pattern)

    def clean(self, text):
        place = (ctypes.c_int * 2)()
        kept = []
        for i in range(0, len(text) - 300, 300):
            part = text[i:i + 300]
            if libc.regexec(self.compiled, part, 1, place, 0) == 0:
                part = part[:place[0]] + part[place[1]:]
            kept.append(part)
        return b"".join(kept)

    def free(self):
        libc.regfree(self.compiled)


def main():
    draws, rng = random.Random(11), np.random.default_rng(11)
    words = ["".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(4, 9))) for _ in range(WORDS)]
    number = {word: i for i, word in enumerate(words)}
    table = rng.random(TABLE, dtype=np.float32)
    ebb, tally, n, lost = marks(), Tally(0.205), 0, 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            rule = Rule(draws.choices(words, k=BLOCKED))
            counts = Counter()
            for _ in range(TEXTS):
                counts.update(rule.clean(" ".join(draws.choices(words, k=400)).encode()).decode().split())
            for word, count in counts.items():
                if word in number:
                    table[number[word], :64] += 1e-4 * count
            if flag("--free"):
                rule.free()
            else:
                lost += RULE
            n += 1
            tally.step(n, lost)
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
