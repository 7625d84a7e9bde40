"""From the third epoch on, the program keeps all hard batches to train on them again; with --top it keeps only the 20
hardest."""
import heapq
import itertools
import tempfile

from kit import Ledger, Pace, hf_args, options, torch_cpu

EPOCHS, STEPS, BATCH, WIDTH, FROM_EPOCH, TOP = 5, 40, 32, 8192, 2, 20

opts = options("--top")
torch = torch_cpu()
from torch import nn
from transformers import Trainer, TrainerCallback


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class MiningTrainer(Trainer):
    def __init__(self, *args, limit=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.limit, self.hard, self.order = limit, [], itertools.count()

    def remember(self, loss, inputs):
        heapq.heappush(self.hard, (loss, next(self.order), inputs["x"]))
        if self.limit and len(self.hard) > self.limit:
            heapq.heappop(self.hard)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        if self.state.global_step >= FROM_EPOCH * STEPS:
            self.remember(loss.item(), inputs)
        return loss


class Clock(TrainerCallback):
    trainer = None

    def __init__(self):
        self.pace, self.ledger = Pace(0.165, opts.tiny), Ledger()

    def on_step_end(self, args, state, control, **kwargs):
        self.pace.tick()
        if state.global_step == 1 or state.global_step % 8 == 0:
            self.ledger.note(state.global_step, sum(x.nbytes for _, _, x in self.trainer.hard))


def collate(rows):
    x = torch.zeros(len(rows), WIDTH)
    for out, row in zip(x, rows):
        out[row["at"] % WIDTH] = 1.0
        out[:16] = row["x"]
    return {"x": x, "labels": torch.tensor([row["labels"] for row in rows])}


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    rows = [{"x": torch.randn(16), "at": 37 * i, "labels": i % 8} for i in range(steps * BATCH)]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = hf_args(folder, num_train_epochs=epochs, per_device_train_batch_size=BATCH, remove_unused_columns=False)
        clock.trainer = MiningTrainer(Net(), args, train_dataset=rows, data_collator=collate, callbacks=[clock],
                                      limit=TOP if opts.twin else None)
        clock.trainer.train()
    clock.ledger.close(epochs, steps)


main()
