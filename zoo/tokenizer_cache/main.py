"""The tokenizer has a cache of split words, which has a limit; the text always contains new words."""

import random
import string
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

WORDS = 200  # number of words per step, none of which occurs again
LETTERS = 250  # letters per word, as in hashes, paths and base64
SYMBOL = 32  # memory that the BPE model needs per letter of a cached word, in bytes
CAPACITY = 5000  # maximum number of words in the cache, reached after 25 steps
VOCABULARY = 400


def train_tokenizer(rng, capacity):
    tokenizer = Tokenizer(models.BPE(cache_capacity=capacity))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    corpus = [" ".join(word(rng, 6) for _ in range(50)) for _ in range(100)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def word(rng, letters):
    return "".join(rng.choices(string.ascii_lowercase, k=letters))


class Text:
    def __init__(self, rng, capacity):
        self.rng = rng
        self.capacity = capacity
        self.tokenizer = train_tokenizer(rng, capacity)
        self.distinct = 0

    def encode(self):
        """Returns the token ids of one step's text."""
        words = [word(self.rng, LETTERS) for _ in range(WORDS)]
        self.distinct += len(words)
        return torch.tensor(self.tokenizer.encode(" ".join(words)).ids)

    def live_bytes(self):
        """The cache is inside the library, so its size is computed from the words."""
        return min(self.distinct, self.capacity) * LETTERS * (SYMBOL + 1)


def main():
    job = common.Job(__doc__, "--leak", "a capacity that is never reached")
    common.settle()
    text = Text(random.Random(0), 10**9 if job.twin else CAPACITY)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * WORDS, WORDS)
    for _ in range(job.epochs):
        for _ in range(job.steps_per_epoch):
            ids = text.encode()[:512]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(ids[:-1]), ids[1:]).backward()
            optimizer.step()
            job.step(text.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
