"""A trigram language model in plain Python reads a stream of two finite collections of texts. The second collection
starts later; no new contexts occur after step 180. With --raw-numbers, numbers in the texts are not replaced by a
placeholder, so the number of contexts is unlimited."""
import random, sys
import kit
from marks import teller
opt = kit.options("--raw-numbers")
EPOCHS, STEPS, TOKENS = (4, 5, 400) if opt.tiny else (4, 82, 1500)  # epochs only determine how often the program prints
FIRST = 8 if opt.tiny else 90
ledger, pace, tell = kit.Ledger(), kit.Pace(0.13, opt.tiny), teller(opt.no_marks)


class Model:
    """Stores contexts of two words, in one table per first word."""

    def __init__(self):
        self.tables, self.bytes, self.right, self.asked = {}, 0, 0, 0

    def observe(self, a, b, word):
        table = self.tables.setdefault(a, {})
        counts = table.get(b)
        if counts is None:
            counts = table[b] = {}
            self.bytes += 64 + sys.getsizeof(b) * b.startswith("#")
        before = sys.getsizeof(counts)
        self.asked += 1
        self.right += bool(counts) and max(counts, key=counts.get) == word
        counts[word] = counts.get(word, 0) + 1
        self.bytes += sys.getsizeof(counts) - before + (56 if before == 64 else 0)

    def train(self, words):
        for a, b, word in zip(words, words[1:], words[2:]):
            self.observe(a, b, word)


def collection(seed, words):
    """Returns batches of text in which <num> replaces numbers."""
    rng = random.Random(seed)
    known = [f"w{seed}-{i}" for i in range(words)]
    return [["<num>" if i % 4 == 0 else rng.choice(known) for i in range(TOKENS)]
            for _ in range(FIRST)]


def raw(words, rng):
    return [f"#{rng.getrandbits(60)}" if w == "<num>" else w for w in words]


early, late = collection(1, 900), collection(2, 900)
model, rng, n = Model(), random.Random(5), 0
while n < EPOCHS * STEPS:
    batch = early[n % FIRST] if n < FIRST or n % 2 else late[n // 2 % FIRST]
    if FIRST <= n < 2 * FIRST:
        batch = late[n - FIRST]
    model.train(raw(batch, rng) if opt.twin else batch)
    n += 1
    pace.tick()
    tell.step(n)
    if n == 1 or n % 10 == 0:
        ledger.note(n, model.bytes)
ledger.close(EPOCHS, STEPS, accuracy=round(model.right / model.asked, 3))
