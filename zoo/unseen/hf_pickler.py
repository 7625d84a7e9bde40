"""Training with the Hugging Face Trainer on texts of mixed lengths. A single Pickler writes the best scores of every
step to a file, and its memo keeps every list that was written. --clear-memo clears the memo after each step. (cpython
#125756)"""
import pickle
import random
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 3, 4) if TINY else (5, 40, 12)
WORDS, BEST, FLOAT, SLOT = 1500, 12, 24, 8


def make_texts():
    draws = random.Random(4)
    return [[draws.randrange(1, WORDS) for _ in range(draws.randint(12, 76))] for _ in range(STEPS * BATCH)]


def pad(rows):
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": tokens, "labels": tokens.masked_fill(tokens == 0, -100)}


class Record:
    """Writes the best scores of each token."""

    def __init__(self, file, clear):
        self.pickler, self.clear, self.held = pickle.Pickler(file, protocol=4), clear, 0

    def write(self, step, logits):
        rows = logits.flatten(0, 1).topk(BEST).values.tolist()
        self.pickler.dump({"step": step, "scores": rows})
        self.held += len(rows) * (56 + BEST * (FLOAT + SLOT) + SLOT)
        if self.clear:
            self.pickler.clear_memo()
            self.held = 0


class RecordingTrainer(Trainer):
    record = None

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        output = model(**inputs)
        self.record.write(self.state.global_step, output.logits.detach())
        return (output.loss, output) if return_outputs else output.loss


class Count(TrainerCallback):
    def __init__(self, tally, record):
        self.tally, self.record = tally, record

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, self.record.held)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    config = GPT2Config(vocab_size=WORDS, n_positions=80, n_embd=128, n_layer=3, n_head=4, bos_token_id=0,
                        eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder, open("/dev/null", "wb") as file:
        record = Record(file, flag("--clear-memo"))
        count = Count(Tally(0.21), record)
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = RecordingTrainer(model=GPT2LMHeadModel(config), args=args, train_dataset=make_texts(),
                                   data_collator=pad, callbacks=[count])
        trainer.record = record
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        count.tally.end()


if __name__ == "__main__":
    main()
