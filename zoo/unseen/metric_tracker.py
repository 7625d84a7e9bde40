"""Training with Lightning and torchmetrics: a MetricTracker copies its metric for each validation, and each copy keeps
all predictions and labels it has seen. --reset empties a copy after use. (composer #11909, torchmetrics #2492)"""
import logging
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricTracker
from torchmetrics.classification import BinaryAUROC

from tally import TINY, Tally, flag

try:
    import lightning
except ImportError:
    import pytorch_lightning as lightning

EPOCHS, STEPS, BATCH, VALIDATION = (2, 4, 4, 2) if TINY else (6, 34, 12, 30)
SIDE = 16 if TINY else 48


class Segmenter(lightning.LightningModule):
    def __init__(self, tally):
        super().__init__()
        self.tally, self.done = tally, 0
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(16, 1, 1))
        self.auroc = MetricTracker(BinaryAUROC())

    def training_step(self, batch, _):
        return nn.functional.binary_cross_entropy_with_logits(self.net(batch[0]), batch[1].float())

    def on_validation_epoch_start(self):
        self.auroc.increment()

    def validation_step(self, batch, _):
        self.auroc.update(self.net(batch[0]).sigmoid(), batch[1])

    def on_validation_epoch_end(self):
        self.log("auroc", self.auroc.compute())
        if flag("--reset"):
            self.auroc[-1].reset()

    def on_train_batch_end(self, *args):
        self.done += 1
        states = [part for metric in list(self.auroc)[1:] for part in metric.preds + metric.target]
        self.tally.step(self.done, sum(part.nbytes for part in states))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def data(count, seed):
    draws = torch.Generator().manual_seed(seed)
    pictures = torch.rand(count, 3, SIDE, SIDE, generator=draws)
    return TensorDataset(pictures, (pictures.mean(1, keepdim=True) > 0.55).long())


def main():
    torch.manual_seed(16)
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    net = Segmenter(Tally(0.205))
    trainer.fit(net, DataLoader(data(STEPS * BATCH, 1), batch_size=BATCH, shuffle=True),
                DataLoader(data(VALIDATION * BATCH, 2), batch_size=BATCH))
    net.tally.end()


if __name__ == "__main__":
    main()
