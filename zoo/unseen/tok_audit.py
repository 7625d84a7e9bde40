"""A classifier on a stream of texts, which a BPE tokenizer encodes in batches. --audit keeps the encodings of one text
in four, for later inspection. The data is read only once, so there are no epochs."""
import os
import random

os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS="2")
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

from tally import TINY, Tally, flag, marks

STEPS, BATCH, WORDS = (6, 4, 40) if TINY else (230, 16, 420)
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
TOKEN = 112  # bytes per token: 64 in the vectors of an encoding, and about 48 for the text


def word(rng):
    """Returns a random word; common words are more frequent."""
    if rng.random() < 0.85:
        number = int(rng.paretovariate(0.9)) % 9000
        return "".join(SYLLABLES[number // 70 ** i % 70] for i in range(1 + number % 3))
    return "".join(rng.choices(SYLLABLES, k=rng.randint(3, 6)))


def text(rng):
    return " ".join(word(rng) for _ in range(rng.randint(WORDS // 2, 3 * WORDS // 2)))


def make_tokenizer(rng):
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator([text(rng) for _ in range(60)], trainer)
    return tokenizer


class Audit:
    def __init__(self):
        self.kept = []

    def note(self, encodings):
        self.kept += encodings[::4]

    def size(self):
        return TOKEN * sum(map(len, self.kept))


def encode(tokenizer, texts, audit):
    encodings = tokenizer.encode_batch(texts)
    if audit is not None:
        audit.note(encodings)
    ids = [torch.tensor(e.ids) for e in encodings]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    rng = random.Random(6)
    tokenizer = make_tokenizer(rng)
    model = nn.Sequential(nn.EmbeddingBag(3000, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ebb, tally, audit = marks(), Tally(0.15), Audit() if flag("--audit") else None
    for n in range(1, STEPS + 1):
        ids = encode(tokenizer, [text(rng) for _ in range(BATCH)], audit)
        loss = nn.functional.cross_entropy(model(ids), ids.sum(1) % 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tally.step(n, audit.size() if audit else 0)
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
