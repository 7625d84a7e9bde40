"""Training with the Hugging Face Trainer: at each log entry, a callback copies the Trainer's state, so that training
can be rolled back. Each copy contains the whole log so far. --last keeps only the newest copy. (trieste #88)"""
import copy
import sys
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (5, 44, 42)
WIDTH, LAYERS = 512, 6


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(STEPS * BATCH, 16, WIDTH, generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": i % 4}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x, labels):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return {"loss": nn.functional.cross_entropy(self.head(x.mean(1)), labels)}


class NormTrainer(Trainer):
    def log(self, logs, *args, **kwargs):
        for name, parameter in self.model.named_parameters():
            logs[f"norm/{name}"] = parameter.detach().norm().item()
            logs[f"mean/{name}"] = parameter.detach().mean().item()
            logs[f"max/{name}"] = parameter.detach().abs().max().item()
        super().log(logs, *args, **kwargs)


class Rollback(TrainerCallback):
    def __init__(self, tally, last):
        self.tally, self.last, self.states, self.held = tally, last, [], 0

    def on_log(self, args, state, control, **kwargs):
        if self.last:
            self.states.clear()
        self.states.append(copy.deepcopy(state))
        size = sum(sys.getsizeof(row) for row in state.log_history)
        self.held = size if self.last else self.held + size

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, self.held)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    rollback = Rollback(Tally(0), flag("--last"))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1, disable_tqdm=True)
        trainer = NormTrainer(model=Net(), args=args, train_dataset=Rows(), callbacks=[rollback])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    rollback.tally.end()


if __name__ == "__main__":
    main()
