"""A bigram model of a service's log lines, with a byte-pair tokenizer that has a cache. Uses only Python's standard
library."""
import argparse
import collections
import itertools
import json
import random
import re
import sys
import time

try:
    import ebb
except ImportError:  # not under `ebb run`
    ebb = None

NUMBER = re.compile(r"[0-9a-f]{12,}")


class BytePairs:
    def __init__(self, merges):
        self.rank = {pair: r for r, pair in enumerate(merges)}
        self.cache = {}

    def split(self, word):
        parts = list(word)
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in self.rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return parts

    def encode(self, word):
        if word not in self.cache:
            self.cache[word] = self.split(word)
        return self.cache[word]

    def nbytes(self):
        # Python interns strings of one letter, so they cost nothing
        return sys.getsizeof(self.cache) + sum(
            sys.getsizeof(w) + sys.getsizeof(p) + sum(sys.getsizeof(s) for s in p if len(s) > 1)
            for w, p in self.cache.items())


def merges(words, count):
    pairs = collections.Counter(p for w in words for p in itertools.pairwise(w))
    found = [p for p, _ in pairs.most_common(count // 2)]
    longer = collections.Counter((a + b, c) for w in words for a, b, c in zip(w, w[1:], w[2:]))
    return found + [p for p, _ in longer.most_common(count // 2)]


def lines(rnd, words, count):
    """Returns log lines, each of which contains a request ID."""
    for _ in range(count):
        some = rnd.choices(words, k=rnd.randint(4, 9))
        yield f"{some[0]} req={rnd.getrandbits(192):048x} " + " ".join(some[1:])


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--leak", action="store_true", help="do not mask the identifiers")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    steps, per_step, pace = (20, 100, 0) if a.tiny else (200, 420, 0.19)
    rnd = random.Random(6)
    words = ["".join(rnd.choices("etaoinshrdlu", k=rnd.randint(3, 11))) for _ in range(6000)]
    tokenizer = BytePairs(merges(words, 120))
    counts = collections.Counter()
    truth = []
    for step in range(1, steps + 1):
        began = time.monotonic()
        for line in lines(rnd, words, per_step + rnd.randint(-80, 80)):
            if not a.leak:
                line = NUMBER.sub("ID", line)
            tokens = [t for w in line.split() for t in tokenizer.encode(w)]
            for t in tokens:
                counts[t] += 1
        if ebb:
            ebb.step(step, max_steps=steps)
        if step % 20 == 0 or step == 1:
            rss = int(open("/proc/self/statm").read().split()[1]) * 4096
            truth.append([step, tokenizer.nbytes(), rss])
        if step % 50 == 0:
            print(step, counts.most_common(3), flush=True)
        time.sleep(max(0, pace - (time.monotonic() - began)))
    print("TRUTH", json.dumps({"words": len(tokenizer.cache), "step_live_rss": truth}))


if __name__ == "__main__":
    main()
