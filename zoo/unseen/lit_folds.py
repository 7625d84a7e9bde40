"""Cross-validation in Lightning, with a new module and Trainer for each of eight folds. The list of results keeps each
Trainer, and with it the module and the optimizer. With --scores the list keeps only the last loss of each fold. Step
numbers restart in each fold."""
import gc
import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

FOLDS, STEPS, BATCH = (2, 4, 8) if TINY else (8, 24, 16)
IN, WIDTH = 800, 900


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(IN, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
        self.loss = 0.0

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.loss = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def size(self):
        return 4 * sum(p.nbytes for p in self.parameters())


class Counter(lightning.Callback):
    def __init__(self, tally):
        self.tally, self.done, self.kept = tally, 0, 0

    def on_train_batch_end(self, trainer, module, *args):
        self.done += 1
        self.tally.step(self.done, self.kept + module.size())


def run_fold(fold, counter):
    dice = torch.Generator().manual_seed(fold)
    data = TensorDataset(torch.randn(STEPS * BATCH, IN, generator=dice),
                         torch.randint(0, 4, (STEPS * BATCH,), generator=dice))
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[counter])
    module = Net()
    trainer.fit(module, DataLoader(data, batch_size=BATCH, shuffle=True))
    return trainer, module


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(9)
    torch.set_num_threads(1)
    counter, results = Counter(Tally(0.2)), []
    for fold in range(FOLDS):
        trainer, module = run_fold(fold, counter)
        if flag("--scores"):
            results.append((module.loss, None))
        else:
            results.append((module.loss, trainer))
            counter.kept += module.size() + STEPS * BATCH * (4 * IN + 8)
        del trainer, module
        gc.collect()
    print("mean loss", sum(loss for loss, _ in results) / FOLDS)
    counter.tally.end()


if __name__ == "__main__":
    main()
