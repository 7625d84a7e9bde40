"""A Hugging Face Trainer gathers the logits of the whole evaluation set and frees them afterwards."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

BATCH = 4
LENGTH = 32
VOCABULARY = 1024
# number of evaluated examples; each has 32 tokens x 1024 logits x 4 bytes, together 32 MiB per evaluation
EVALUATED = 256


class Tokens(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Metrics:
    """Computes the accuracy of the gathered logits. The leaking variant also keeps the logits "to compare later"."""

    def __init__(self, twin):
        self.history = []
        self.twin = twin

    def __call__(self, prediction):
        if self.twin:
            self.history.append(prediction.predictions)
        right = prediction.predictions[:, :-1].argmax(-1) == prediction.label_ids[:, 1:]
        return {"accuracy": float(right.mean())}

    def live_bytes(self):
        return sum(logits.nbytes for logits in self.history)


class Reporter(TrainerCallback):
    def __init__(self, job, metrics):
        self.job = job
        self.metrics = metrics

    def on_step_end(self, args, state, control, **kwargs):
        self.job.step(self.metrics.live_bytes())

    def on_evaluate(self, args, state, control, **kwargs):
        self.job.evaluated()

    def on_save(self, args, state, control, **kwargs):
        self.job.saved()


def main():
    job = common.Job(__doc__, "--leak", "keep the logits of every evaluation")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=256, n_layer=4, n_head=4)
    )
    model.config.use_cache = False  # otherwise the key-value caches of all layers would be gathered, too
    metrics = Metrics(job.twin)
    arguments = TrainingArguments(
        output_dir=job.folder, num_train_epochs=job.epochs, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=8, eval_strategy="steps", eval_steps=25, save_strategy="epoch",
        save_total_limit=1, report_to=[], disable_tqdm=True, use_cpu=True, seed=0,
        logging_strategy="no",
    )
    trainer = Trainer(model, arguments, train_dataset=Tokens(examples, 1),
                      eval_dataset=Tokens(EVALUATED, 2), compute_metrics=metrics,
                      callbacks=[Reporter(job, metrics)])
    job.begin(examples, BATCH)
    trainer.train()
    job.end()


if __name__ == "__main__":
    main()
