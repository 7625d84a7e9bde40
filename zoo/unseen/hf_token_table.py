"""Token classification with the Hugging Face Trainer. A table collects predictions and writes them as JSON lines."""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainerCallback, TrainingArguments

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class Sentences(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 900, (n, 64), generator=g)
        self.tags = self.ids % len(TAGS)
        self.lengths = torch.randint(40, 65, (n,), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        k = int(self.lengths[i])
        return {"input_ids": self.ids[i, :k], "labels": self.tags[i, :k]}


def pad(items):
    longest = max(len(i["input_ids"]) for i in items)
    out = {"input_ids": torch.zeros(len(items), longest, dtype=torch.long),
           "attention_mask": torch.zeros(len(items), longest, dtype=torch.long),
           "labels": torch.full((len(items), longest), -100)}
    for r, item in enumerate(items):
        k = len(item["input_ids"])
        out["input_ids"][r, :k] = item["input_ids"]
        out["attention_mask"][r, :k] = 1
        out["labels"][r, :k] = item["labels"]
    return out


class PredictionTable:
    """Holds rows until they are written."""

    def __init__(self, path, forget):
        self.path, self.forget = path, forget
        self.rows, self.written = [], 0

    def add_batch(self, step, ids, logits, mask):
        probabilities = logits.detach().softmax(-1).max(-1)
        for row, (tokens, ps, ts) in enumerate(zip(ids.tolist(), probabilities.values.tolist(),
                                                   probabilities.indices.tolist())):
            for k in range(int(mask[row].sum())):
                self.rows.append({"step": step, "token": f"tok{tokens[k]}", "p": ps[k],
                                  "margin": ps[k] - 1 / len(TAGS), "tag": TAGS[ts[k]]})

    def flush(self):
        with open(self.path, "a") as f:
            for row in self.rows[self.written:]:
                f.write(json.dumps(row) + "\n")
        self.written = len(self.rows)
        if self.forget:
            self.rows.clear()
            self.written = 0

    def nbytes(self):
        return sys.getsizeof(self.rows) + sum(
            sys.getsizeof(r) + sys.getsizeof(r["token"]) + 48 for r in self.rows)


class TableTrainer(Trainer):
    table = None

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        if model.training:
            self.table.add_batch(self.state.global_step, inputs["input_ids"], outputs.logits,
                                 inputs["attention_mask"])
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Housekeeping(TrainerCallback):
    def __init__(self, table, pause):
        self.table, self.pause, self.truth = table, pause, []
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 10 == 0:
            self.table.flush()
        if state.global_step % 24 == 5:
            with open("/proc/self/statm") as f:
                self.truth.append([state.global_step, self.table.nbytes(), int(f.read().split()[1]) * 4096])
        time.sleep(max(0, self.began + state.global_step * self.pause - time.monotonic()))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--fixed", action="store_true", help="forget rows that are written")
    ap.add_argument("--tiny", action="store_true")
    opt = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    examples, epochs, pause = (160, 2, 0) if opt.tiny else (960, 4, 0.21)
    folder = tempfile.mkdtemp()
    model = BertForTokenClassification(BertConfig(
        vocab_size=1000, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=80, num_labels=len(TAGS)))
    table = PredictionTable(os.path.join(folder, "table.jsonl"), opt.fixed)
    keeper = Housekeeping(table, pause)
    trainer = TableTrainer(
        model=model, train_dataset=Sentences(examples, 1), eval_dataset=Sentences(96, 2), data_collator=pad,
        callbacks=[keeper],
        args=TrainingArguments(
            output_dir=folder, num_train_epochs=epochs, per_device_train_batch_size=20,
            per_device_eval_batch_size=32, eval_strategy="epoch", save_strategy="steps", save_steps=60,
            save_total_limit=1, logging_steps=25, report_to="none", use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, remove_unused_columns=False))
    trainer.table = table
    trainer.train()
    shutil.rmtree(folder)
    print("TRUTH", json.dumps({"rows": len(table.rows), "step_live_rss": keeper.truth}))


if __name__ == "__main__":
    main()
