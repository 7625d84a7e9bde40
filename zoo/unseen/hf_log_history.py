"""Training with the Hugging Face Trainer and a retrieval memory of 1 GB. Each step logs a histogram as a list of
numbers, and the Trainer's state keeps the log. In total, the leak is 1.5 % of the process's memory. --summary logs only
the mean."""
import tempfile

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (3, 62, 8)
MEMORY = 200_000 if TINY else 1_000_000
WIDTH, BINS = 256, 3200


class Retrieval(torch.utils.data.Dataset):
    def __init__(self):
        self.memory = np.empty((MEMORY, WIDTH), np.float32)
        block = np.random.default_rng(5).random((10_000, WIDTH), dtype=np.float32)
        for at in range(0, MEMORY, len(block)):
            self.memory[at:at + len(block)] = block + np.float32(at / MEMORY)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        return {"x": torch.from_numpy(self.memory[i * 977 % MEMORY]), "labels": i % 5}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, BINS))
        self.head = nn.Linear(BINS, 5)

    def forward(self, x, labels):
        wide = self.body(x)
        return {"loss": nn.functional.cross_entropy(self.head(wide), labels), "wide": wide}


class HistogramTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        self.log_activity(outputs["wide"].detach())
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def log_activity(self, wide):
        activity = wide.double().mean(0)
        self.log({"activity": activity.mean().item() if flag("--summary") else activity.tolist()})


class Counter(TrainerCallback):
    def __init__(self, tally):
        self.tally = tally

    def on_step_end(self, args, state, control, **kwargs):
        kept = sum(len(row["activity"]) * 32 for row in state.log_history if isinstance(row.get("activity"), list))
        self.tally.step(state.global_step, kept)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    counter = Counter(Tally(0.2))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = HistogramTrainer(model=Net(), args=args, train_dataset=Retrieval(), callbacks=[counter])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    counter.tally.end()


if __name__ == "__main__":
    main()
