"""Training with Lightning: weight averaging begins in the third epoch, and each validation causes a memory peak.
--history keeps every copy of the weights."""
import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

STEPS, EPOCHS, LATE = (3, 3, 1) if TINY else (32, 5, 2)
WIDTH, CHECKED, CHECK = 384, 6000, 250


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                                 nn.Linear(WIDTH, 8))
        self.outputs = None

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def on_validation_epoch_start(self):
        self.outputs = torch.empty(CHECKED, 8 * WIDTH)

    def validation_step(self, batch, i):
        self.outputs[CHECK * i:CHECK * (i + 1)] = self.net[:4](batch[0]).repeat(1, 8)

    def on_validation_epoch_end(self):
        self.log("spread", self.outputs[::100].std())
        self.outputs = None

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Averager(lightning.Callback):
    def __init__(self, tally, history):
        self.tally, self.history = tally, history
        self.copies, self.mean, self.seen, self.n = [], None, 0, 0

    def snapshot(self, module):
        return [p.detach().clone() for p in module.parameters()]

    def update(self, module):
        self.seen += 1
        if self.history:
            self.copies.append(self.snapshot(module))
        elif self.mean is None:
            self.mean = self.snapshot(module)
        else:
            for mean, p in zip(self.mean, module.parameters()):
                mean.lerp_(p.detach(), 1 / self.seen)

    def on_train_batch_end(self, trainer, module, *args):
        if trainer.current_epoch >= LATE:
            self.update(module)
        self.n += 1
        kept = len(self.copies) + (self.mean is not None)
        self.tally.step(self.n, kept * sum(p.nbytes for p in module.parameters()))


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    tally = Tally(0.2)
    train = TensorDataset(torch.randn(STEPS * 16, 64), torch.randint(0, 8, (STEPS * 16,)))
    check = TensorDataset(torch.randn(CHECKED, 64))
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                                callbacks=[Averager(tally, flag("--history"))])
    trainer.fit(Net(), DataLoader(train, batch_size=16, shuffle=True), DataLoader(check, batch_size=CHECK))
    tally.end()


if __name__ == "__main__":
    main()
