"""A caption model with the Hugging Face Trainer. A callback measures the loss of one fixed batch and sums it as
a tensor. It never calls backward on the sum, so the graphs of all losses stay alive. `--item` sums plain
numbers.
"""

import argparse
import ctypes
import json
import tempfile
import time

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments)

WORDS, LENGTH = 800, 48
STEP_S = 0.45


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def live_heap():
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo2
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Captions(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.rows = torch.randint(0, WORDS, (count, LENGTH), generator=draw)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class ProbeLoss(TrainerCallback):
    """After each step, measures the loss on one batch that is not used for training."""

    def __init__(self, item):
        rows = Captions(6, seed=7).rows
        self.batch = {"input_ids": rows, "labels": rows}
        self.item, self.total = item, 0.0

    def on_step_end(self, args, state, control, model=None, **kwargs):
        loss = model(**self.batch).loss
        self.total += loss.item() if self.item else loss
        if state.global_step % 20 == 0:
            print(f"step {state.global_step} probe {float(self.total) / state.global_step:.3f}")


class Pace(TrainerCallback):
    """Makes a step take as long as on the GPU for which the program was written."""

    def __init__(self, step_s):
        self.step_s, self.began, self.rows = step_s, time.monotonic(), []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(max(0, self.began + self.step_s - time.monotonic()))
        self.rows.append((state.global_step, live_heap(), resident()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--item", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=96, n_layer=2, n_head=4))
    pace = Pace(0 if args.tiny else STEP_S)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model, train_dataset=Captions(168 if not args.tiny else 32, seed=1),
            eval_dataset=Captions(16, seed=2), callbacks=[ProbeLoss(args.item), pace],
            args=TrainingArguments(
                folder, num_train_epochs=4, per_device_train_batch_size=4,
                gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=14,
                save_steps=28, save_total_limit=1, logging_steps=20, report_to=[], use_cpu=True,
                disable_tqdm=True))
        began = time.monotonic()
        trainer.train()
    step, live, rss = zip(*pace.rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - began, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
