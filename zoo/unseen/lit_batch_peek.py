"""Training with Lightning and three batches per optimizer step. A callback keeps one batch per step for pictures that
are drawn at the end of the epoch. It frees these batches afterwards only with --clear."""
import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

BATCHES, BATCH, EPOCHS = (7, 4, 2) if TINY else (40, 16, 6)
GROUP, SIDE = 3, 64


class Textures(Dataset):
    def __len__(self):
        return BATCHES * BATCH

    def __getitem__(self, i):
        line = torch.linspace(0, 6 + i % 9, SIDE)
        return torch.sin(line[:, None] + line[None, :]).expand(3, SIDE, SIDE).clone(), i % 9


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 9))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Preview(lightning.Callback):
    def __init__(self, clear):
        self.clear, self.batches, self.brightness = clear, [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % GROUP == GROUP - 1:
            self.batches.append(batch[0])

    def on_train_epoch_end(self, trainer, module):
        sheet = torch.cat([x[:1, :, ::8, ::8] for x in self.batches[-6:]])
        self.brightness.append(sheet.mean().item())
        if self.clear:
            self.batches.clear()


class Counter(lightning.Callback):
    def __init__(self, tally, preview):
        self.tally, self.preview, self.seen = tally, preview, 0

    def on_train_batch_end(self, trainer, module, *args):
        if trainer.global_step > self.seen:
            self.seen = trainer.global_step
            self.tally.step(self.seen, sum(x.nbytes for x in self.preview.batches))


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    tally, preview = Tally(0.38), Preview(flag("--clear"))
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                accumulate_grad_batches=GROUP, callbacks=[preview, Counter(tally, preview)])
    trainer.fit(Net(), DataLoader(Textures(), batch_size=BATCH, shuffle=True))
    tally.end()


if __name__ == "__main__":
    main()
