"""Training with the Hugging Face Trainer and a callback that looks for leaks. The callback takes a tracemalloc snapshot
every 20 steps, prints the line that has grown most since the previous snapshot, and keeps all snapshots. --last keeps
only the newest. (esphome/device-builder #935, nicegui #6028)"""
import random
import sys
import tempfile
import tracemalloc

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, EVERY = (2, 4, 4, 2) if TINY else (5, 41, 16, 20)
LENGTH, WIDTH, WORDS = (8, 32, 500) if TINY else (48, 96, 4000)


class Texts(torch.utils.data.Dataset):
    """Texts as lists of words, and the token ID of each word."""

    def __init__(self, count, seed):
        draws = random.Random(seed)
        self.numbers = {f"word-{i}": i for i in range(WORDS)}
        self.texts = [[f"word-{draws.randrange(WORDS)}" for _ in range(LENGTH)] for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        tokens = torch.tensor([self.numbers[word] for word in self.texts[i]])
        return {"tokens": tokens, "labels": tokens % 12}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 192, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 12)

    def forward(self, tokens, labels):
        logits = self.head(self.body(self.table(tokens)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class LeakFinder(TrainerCallback):
    def __init__(self, tally, last):
        self.tally, self.last, self.snapshots, self.live = tally, last, [], 0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % EVERY == 0:
            self.compare(state.global_step)
        self.tally.step(state.global_step, self.live)

    def compare(self, step):
        snapshot = tracemalloc.take_snapshot()
        if self.snapshots:
            grown = snapshot.compare_to(self.snapshots[-1], "lineno")[0]
            print(f"step {step}: {grown.size_diff >> 10} KiB more in line {grown.traceback[0].lineno}")
        if self.last:
            self.snapshots.clear()
        self.snapshots.append(snapshot)
        traces = sum(len(snapshot.traces) for snapshot in self.snapshots)
        self.live = traces * (sys.getsizeof((0, 0, (), 0)) + 16)


def main():
    torch.manual_seed(40)
    torch.set_num_threads(1)
    tracemalloc.start()
    finder = LeakFinder(Tally(0.21), flag("--last"))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = Trainer(model=Tagger(), args=args, train_dataset=Texts(STEPS * BATCH, 1), callbacks=[finder])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    finder.tally.end()


if __name__ == "__main__":
    main()
