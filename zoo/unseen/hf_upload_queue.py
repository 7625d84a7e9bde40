"""Training with the Hugging Face Trainer. The embeddings of each step are put into a queue for an uploader, which takes
only one in three. The queue is full after 120 of 200 steps; from then on, new embeddings are dropped. With --unbounded
the queue has no limit. (wandb #6557)"""
import queue
import tempfile
import threading

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (5, 40, 32)
ROOM, EVERY = 80, 3
LENGTH, WIDTH, LAYERS = 26, 256, 3
SENT = (300, 256)  # of float32: 0.3 MB


class Texts(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 2000, (STEPS * BATCH, LENGTH), generator=torch.Generator().manual_seed(4))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "labels": i % 4}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2000, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 512, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), nn.Linear(WIDTH, 4)
        self.seen = None

    def forward(self, tokens, labels):
        hidden = self.body(self.table(tokens))
        self.seen = hidden.detach().flatten(0, 1)[:SENT[0]]
        return {"loss": nn.functional.cross_entropy(self.head(hidden.mean(1)), labels)}


class Uploads(TrainerCallback):
    def __init__(self, tally, room):
        self.tally, self.waiting, self.turn, self.sent = tally, queue.Queue(room), threading.Semaphore(0), 0
        threading.Thread(target=self.upload, daemon=True).start()

    def upload(self):
        while True:
            self.turn.acquire()
            self.sent += float(self.waiting.get().mean()) != 0

    def on_step_end(self, args, state, control, model=None, **kwargs):
        try:
            self.waiting.put_nowait(model.seen.clone())
        except queue.Full:
            pass
        if state.global_step % EVERY == 0:
            self.turn.release()
        self.tally.step(state.global_step, self.waiting.qsize() * SENT[0] * SENT[1] * 4)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    uploads = Uploads(Tally(0), 0 if flag("--unbounded") else ROOM)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = Trainer(model=Net(), args=args, train_dataset=Texts(), callbacks=[uploads])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    uploads.tally.end()


if __name__ == "__main__":
    main()
