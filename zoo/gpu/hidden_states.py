"""A Trainer keeps a vision transformer's hidden states of each batch for a plot; --fixed keeps only their norms."""
import tempfile

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification

from kit import CUDA, EPOCHS, FIXED, STEPS, TINY, Items, Tally

BATCH = 4 if TINY else 96


class PlotTrainer(Trainer):
    kept = []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(**inputs, output_hidden_states=True)
        last = out.hidden_states[-1].detach()
        self.kept.append(float(last.float().norm()) if FIXED else last)
        return (out.loss, out) if return_outputs else out.loss


class Counter(TrainerCallback):
    def __init__(self):
        self.tally = Tally()

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step)


def main():
    size = dict(image_size=64, patch_size=8, hidden_size=192, num_hidden_layers=6, num_attention_heads=3,
                intermediate_size=512, num_labels=10)
    model = ViTForImageClassification(ViTConfig(**size))
    data = Items(BATCH, lambda i: {"pixel_values": torch.randn(3, 64, 64), "labels": i % 10})
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=STEPS, bf16=CUDA,
                                 use_cpu=not CUDA)
        PlotTrainer(model=model, args=args, train_dataset=data, callbacks=[counter]).train()
    counter.tally.end()


if __name__ == "__main__":
    main()
