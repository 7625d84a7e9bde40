"""Training with the Hugging Face Trainer: each checkpoint is compressed and added to an upload queue that is never
emptied; --upload empties it. Every third checkpoint includes the optimizer."""
import io
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS, SAVE = (4, 4, 2, 3) if TINY else (40, 4, 4, 13)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(6000, 160)
        self.body = nn.GRU(160, 160, batch_first=True)
        self.head = nn.Linear(160, 20)

    def forward(self, ids, labels=None):
        logits = self.head(self.body(self.words(ids))[0].mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {"ids": torch.arange(i, i + 32) % 6000, "labels": torch.tensor(i % 20)}


class Uploader(TrainerCallback):
    def __init__(self, tally, upload):
        self.tally, self.upload, self.queue, self.saves = tally, upload, [], 0

    def pack(self, model, optimizer):
        out = io.BytesIO()
        whole = {"model": model.state_dict()}
        if self.saves % 3 == 0:
            whole["optimizer"] = optimizer.state_dict()
        torch.save(whole, out)
        return out.getvalue()

    def on_save(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.saves += 1
        self.queue.append(self.pack(model, optimizer))
        if self.upload:
            self.queue.clear()

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, sum(map(len, self.queue)))


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    tally = Tally(0.2)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="steps", save_steps=SAVE, save_total_limit=1, report_to=[],
                                 use_cpu=True, logging_steps=20, disable_tqdm=True, dataloader_num_workers=0)
        Trainer(model=Model(), args=args, train_dataset=Rows(STEPS * BATCH),
                callbacks=[Uploader(tally, flag("--upload"))]).train()
    tally.end()


if __name__ == "__main__":
    main()
