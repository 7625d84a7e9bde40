"""Documents of 4 to 400 kB are cleaned by regular expressions and classified by their trigrams, so the sizes of batches
are very uneven. With --audit the matches of telephone numbers are kept for a report; each match refers to the whole
document. (cgeo #2328, corefx #32417)"""
import re

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, LONGEST = (2, 4, 4, 8_000) if TINY else (5, 42, 12, 400_000)
BUCKETS, WIDTH = 20_000, 24
LETTERS = np.frombuffer(b"etaoinshrdlu cmfwypvbgkjqxz    ", np.uint8)
TELEPHONE = re.compile(r"\+\d{2} \d{3} \d{6}")
RARE = re.compile(r" q[a-z]{3,}")


class Documents(torch.utils.data.Dataset):
    """One document in five has a telephone number."""

    def __init__(self, count):
        self.count, self.rng = count, np.random.default_rng(43)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        length = int(LONGEST / 100 * 100 ** (self.rng.random() ** 1.5))
        text = LETTERS[self.rng.integers(0, len(LETTERS), length, np.uint8)].tobytes().decode()
        if self.rng.random() < 1 / 5:
            at = int(self.rng.integers(0, length))
            text = f"{text[:at]} +49 {self.rng.integers(100, 999)} {self.rng.integers(100_000, 999_999)} {text[at:]}"
        return text, i % 4


class Cleaner:
    def __init__(self, audit):
        self.audit, self.found = audit, []

    def clean(self, text):
        match = TELEPHONE.search(text)
        if match:
            if self.audit:
                self.found.append(match)
            text = text[:match.start()] + text[match.end():]
        return RARE.sub("", text)

    def collate(self, items):
        """Returns the trigrams of all documents in one array, the start of each document in it, and the labels."""
        rows = []
        for text, _ in items:
            letters = np.frombuffer(self.clean(text).encode(), np.uint8).astype(np.int64)
            rows.append((letters[:-2] * 961 + letters[1:-1] * 31 + letters[2:])[::6] % BUCKETS)
        starts = np.cumsum([0] + [len(row) for row in rows[:-1]])
        return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(starts), torch.tensor([label for _, label in items])

    def nbytes(self):
        return sum(len(match.string) for match in self.found)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.gate, self.head = nn.Embedding(BUCKETS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, trigrams, starts):
        rows = self.gate(self.table(trigrams)).relu()
        return self.head(torch.stack([part.mean(0) for part in rows.tensor_split(starts[1:])]))


def main():
    torch.manual_seed(43)
    torch.set_num_threads(1)
    cleaner = Cleaner(flag("--audit"))
    loader = torch.utils.data.DataLoader(Documents(STEPS * BATCH), batch_size=BATCH, shuffle=True, collate_fn=cleaner.collate)
    net = Classifier()
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.22), 0
    for _ in range(EPOCHS):
        for trigrams, starts, labels in loader:
            loss = nn.functional.cross_entropy(net(trigrams, starts), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, cleaner.nbytes())
    if flag("--audit"):
        print(f"{len(cleaner.found)} telephone numbers, the last at {cleaner.found[-1].span() if cleaner.found else None}")
    tally.end()


if __name__ == "__main__":
    main()
