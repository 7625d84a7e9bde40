"""Training with the Hugging Face Trainer, gradient checkpointing, and texts of varying length. With --trace, a tracer
that was meant for one inspection stays in the block. It keeps the block's inputs, both in the forward pass and when the
block is recomputed."""
import tempfile

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainerCallback, TrainingArguments

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (4, 46, 8)
VOCABULARY, WIDTH, SHORT, LONG, KEEP = 700, 64, 24, 120, 2


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        dice = torch.Generator().manual_seed(i)
        length = int(torch.randint(SHORT, LONG, (1,), generator=dice))
        return torch.randint(1, VOCABULARY, (length,), generator=dice)


def collate(texts):
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"ids": ids, "labels": ids}


class Tracer:
    def __init__(self, on):
        self.on, self.seen = on, []

    def look(self, x):
        if self.on:
            self.seen.append(x.detach()[:KEEP, :SHORT].repeat(1, 1, 6))  # each entry has 2 x 24 x 384 floats: 73.7 kB

    def held(self):
        return sum(x.nbytes for x in self.seen)


class Block(nn.Module):
    def __init__(self, tracer):
        super().__init__()
        self.tracer = tracer
        self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        self.tracer.look(x)
        return x + self.mix(x + x.roll(1, 1))


class Model(nn.Module):
    def __init__(self, tracer):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block(tracer) for _ in range(3))

    def forward(self, ids, labels):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return {"loss": nn.functional.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), labels[:, 1:].flatten())}


class Counter(TrainerCallback):
    def __init__(self, tally, tracer):
        self.tally, self.tracer = tally, tracer

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, self.tracer.held())


def main():
    torch.manual_seed(18)
    torch.set_num_threads(1)
    tracer = Tracer(flag("--trace"))
    counter = Counter(Tally(0.2), tracer)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=50, disable_tqdm=True,
                                 remove_unused_columns=False)
        Trainer(model=Model(tracer), args=args, train_dataset=Texts(), data_collator=collate,
                callbacks=[counter]).train()
    counter.tally.end()


if __name__ == "__main__":
    main()
