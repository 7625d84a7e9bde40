"""A Lightning module collects the outputs of training_step until the end of the epoch, and does not clear them then."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 256
WIDTH = 1024  # x 256 floats: 1 MiB/step


class Module(lightning.LightningModule):
    def __init__(self, job):
        super().__init__()
        self.body = nn.Linear(64, WIDTH)
        self.head = nn.Linear(WIDTH, 1)
        self.outputs = []
        self.job = job

    def training_step(self, batch, _):
        hidden = torch.relu(self.body(batch[0]))
        self.outputs.append(hidden.detach())
        return self.head(hidden).square().mean()

    def on_train_batch_end(self, *_):
        self.job.step(sum(hidden.untyped_storage().nbytes() for hidden in self.outputs))

    def on_train_epoch_end(self):
        self.spread = torch.stack([hidden.std() for hidden in self.outputs]).mean().item()
        if self.job.twin:
            self.outputs.clear()
        self.job.save(self)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main():
    job = common.Job(__doc__, "--fixed", "clear the outputs at the end of the epoch")
    common.settle()
    warnings.filterwarnings("ignore")
    examples = job.steps_per_epoch * BATCH
    loader = DataLoader(TensorDataset(torch.randn(examples, 64)), BATCH, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=job.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    job.begin(examples, BATCH)
    trainer.fit(Module(job), loader)
    job.end()


if __name__ == "__main__":
    main()
