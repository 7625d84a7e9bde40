"""Training with Lightning: the outputs of a validation are kept for a report until the next validation begins.
--history keeps the outputs of each validation as a tensor. (Lightning #5735, #14270)"""
import logging
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

try:
    import lightning
except ImportError:
    import pytorch_lightning as lightning

EPOCHS, STEPS, BATCH = (2, 4, 8) if TINY else (5, 40, 32)
EVERY, VALIDATION, SIDE = (2, 2, 32) if TINY else (20, 10, 32)
MAPS = 8  # images of 32 by 32, 32 per batch: 1 MB


class Net(lightning.LightningModule):
    def __init__(self, tally):
        super().__init__()
        self.tally, self.outputs, self.history, self.done = tally, [], [], 0
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(48, MAPS, 3, padding=1))
        self.head = nn.Linear(MAPS, 4)

    def loss(self, batch):
        maps = self.body(batch[0])
        return nn.functional.cross_entropy(self.head(maps.mean((2, 3))), batch[1]), maps

    def training_step(self, batch, _):
        return self.loss(batch)[0]

    def on_validation_start(self):
        self.outputs.clear()

    def validation_step(self, batch, _):
        loss, maps = self.loss(batch)
        self.outputs.append(maps)
        self.log("val_loss", loss)

    def on_validation_epoch_end(self):
        self.log("spread", torch.stack([maps.std() for maps in self.outputs]).mean())
        if flag("--history"):
            self.history.append(torch.cat(self.outputs))
            self.outputs.clear()

    def on_train_batch_end(self, *args):
        self.done += 1
        self.tally.step(self.done, sum(maps.nbytes for maps in self.outputs + self.history))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def data(batches, seed):
    dice = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand(batches * BATCH, 1, SIDE, SIDE, generator=dice),
                         torch.randint(0, 4, (batches * BATCH,), generator=dice))


def main():
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.manual_seed(9)
    torch.set_num_threads(1)
    net = Net(Tally(0))
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, val_check_interval=EVERY,
                                num_sanity_val_steps=0)
    trainer.fit(net, DataLoader(data(STEPS, 1), batch_size=BATCH, shuffle=True),
                DataLoader(data(VALIDATION, 2), batch_size=BATCH))
    net.tally.end()


if __name__ == "__main__":
    main()
