"""Training with Lightning on texts of widely varying length, so the memory per step varies. The best scores of an epoch
are collected for a figure at its end and then cleared. With --keep-outputs they are not cleared, and in total the
memory of the process grows by a tenth."""
import logging
import random
import sys

from kit import Ledger, Pace, options, torch_cpu

EPOCHS, STEPS, BATCH, LABELS, HIDDEN, BEST = 4, 55, 16, 2304, 192, 288

opts = options("--keep-outputs")
torch = torch_cpu()
import lightning
from torch import nn
from torch.utils.data import DataLoader

logging.getLogger("lightning").setLevel(logging.ERROR)
random.seed(5)


def size(rows):
    """Returns the bytes of lists of floats, including the float objects."""
    return sum(sys.getsizeof(row) + len(row) * sys.getsizeof(0.0) for row in rows) + sys.getsizeof(rows)


class Tagger(lightning.LightningModule):
    def __init__(self, steps):
        super().__init__()
        self.embed = nn.Embedding(500, 32)
        self.body = nn.Sequential(nn.Linear(32, HIDDEN), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(HIDDEN, LABELS)
        self.outputs = []
        self.pace, self.ledger, self.done = Pace(0.15, opts.tiny), Ledger(), 0

    def training_step(self, batch, index):
        tokens, labels = batch
        logits = self.head(self.body(self.embed(tokens)).mean(1))
        self.outputs.append(logits.detach().topk(BEST).values.tolist())
        return nn.functional.cross_entropy(logits, labels)

    def on_train_batch_end(self, *args):
        self.done += 1
        self.pace.tick()
        if self.done == 1 or self.done % 8 == 0:
            self.ledger.note(self.done, sum(size(rows) for rows in self.outputs))

    def on_train_epoch_end(self):
        sum(row[0] for rows in self.outputs[-STEPS:] for row in rows)
        if not opts.twin:
            self.outputs.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def collate(rows):
    longest = max(len(tokens) for tokens, _ in rows)
    padded = torch.zeros(len(rows), longest, dtype=torch.long)
    for row, (tokens, _) in zip(padded, rows):
        row[:len(tokens)] = tokens
    return padded, torch.tensor([label for _, label in rows])


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    sizes = [random.choice((12, 30, 60, 120, 220, 400)) for _ in range(steps)]
    rows = [(torch.randint(0, 500, (sizes[i // BATCH],)), random.randrange(LABELS)) for i in range(steps * BATCH)]
    model = Tagger(steps)
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(rows, batch_size=BATCH, shuffle=True, collate_fn=collate))
    model.ledger.close(epochs, steps)


main()
