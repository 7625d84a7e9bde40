"""A language model with the Hugging Face Trainer, evaluated every twenty
steps. The Trainer gathers the logits of the whole evaluation for
compute_metrics; with `--argmax` it reduces them batch by batch. Neither
variant leaks.
"""

import argparse
import json
import tempfile
import time

import numpy as np
import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments)

WORDS, LENGTH, STEP_S = 3000, 40, 0.2


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def sentences(count, seed):
    rows = torch.randint(0, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row} for row in rows]


def accuracy(prediction):
    guessed = prediction.predictions
    if guessed.ndim == 3:
        guessed = guessed.argmax(-1)
    return {"accuracy": float(np.mean(guessed[:, :-1] == prediction.label_ids[:, 1:]))}


def reduce_logits(logits, labels):
    return logits.argmax(-1)


class Pace(TrainerCallback):
    def __init__(self, step_s):
        self.step_s, self.began, self.rows = step_s, 0, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(max(0, self.began + self.step_s - time.monotonic()))
        self.rows.append((state.global_step, 0, resident()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--argmax", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, use_cache=False))
    pace = Pace(0 if args.tiny else STEP_S)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model, train_dataset=sentences(24 if args.tiny else 160, 1),
            eval_dataset=sentences(16 if args.tiny else 128, 2), compute_metrics=accuracy,
            preprocess_logits_for_metrics=reduce_logits if args.argmax else None, callbacks=[pace],
            args=TrainingArguments(
                folder, num_train_epochs=4, per_device_train_batch_size=4, per_device_eval_batch_size=16,
                eval_strategy="steps", eval_steps=20, save_steps=40, save_total_limit=1, logging_steps=20,
                report_to=[], use_cpu=True, disable_tqdm=True))
        began = time.monotonic()
        trainer.train()
    step, live, rss = zip(*pace.rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - began, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
