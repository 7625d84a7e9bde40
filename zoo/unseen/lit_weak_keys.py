"""Training with Lightning. A WeakKeyDictionary stores a note for each batch; the note should be freed when the batch
is. But each note refers to its batch, so neither is ever freed. With --numbers a note contains only numbers. (cpython
#88846)"""
import logging
import warnings
import weakref

import lightning
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (5, 40, 24)
SIDE, CHANNELS = 32, 3


class Batch:
    def __init__(self, pictures, labels):
        self.pictures, self.labels = pictures, labels


class Note:
    def __init__(self, batch, about):
        self.batch, self.about = batch, about


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.draws = torch.Generator().manual_seed(6)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        return torch.rand(CHANNELS, SIDE, SIDE, generator=self.draws) + i % 5 / 5, i % 5


def collate(items):
    return Batch(torch.stack([picture for picture, _ in items]), torch.tensor([label for _, label in items]))


class Net(lightning.LightningModule):
    def __init__(self, numbers):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(CHANNELS, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 5))
        self.numbers, self.notes = numbers, weakref.WeakKeyDictionary()

    def training_step(self, batch, index):
        self.note(batch)
        return nn.functional.cross_entropy(self.body(batch.pictures), batch.labels)

    def note(self, batch):
        about = (float(batch.pictures.mean()), float(batch.pictures.std()))
        self.notes[batch] = Note(None if self.numbers else batch, about)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Count(lightning.Callback):
    def __init__(self, tally):
        self.tally = tally

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.tally.step(trainer.global_step, len(module.notes) * BATCH * CHANNELS * SIDE * SIDE * 4)


def main():
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(6)
    torch.set_num_threads(1)
    count = Count(Tally(0.2))
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[count])
    trainer.fit(Net(flag("--numbers")), torch.utils.data.DataLoader(Pictures(), batch_size=BATCH, collate_fn=collate))
    count.tally.end()


if __name__ == "__main__":
    main()
