"""A small Hugging Face training that leaks: its collator keeps every batch it has made.

    ebb run --limit 2G --restart -- python examples/hf_leak.py --steps 2000

Needs torch, transformers and accelerate, and downloads nothing. With --callback the script itself passes ebb's
callback to the Trainer, for runs without ebb's Python hooks.
"""

import argparse
import time

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

SIDE = 16  # Side of an image in pixels.


class Images(torch.utils.data.Dataset):
    """Random images of four classes, the same in each run."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict:
        pixels = torch.randn(3, SIDE, SIDE, generator=torch.Generator().manual_seed(i))
        return {"pixel_values": pixels + i % 4, "labels": i % 4}


class Hoarder:
    """The leak: this list is never cleared."""

    def __init__(self, leak_mib: float, step_ms: float) -> None:
        self.kept: list = []
        self.leak_bytes = int(leak_mib * (1 << 20))
        self.step_ms = step_ms

    def __call__(self, examples: list) -> dict:
        time.sleep(self.step_ms / 1000)
        self.kept.append(torch.ones(self.leak_bytes, dtype=torch.uint8))
        return {
            "pixel_values": torch.stack([e["pixel_values"] for e in examples]),
            "labels": torch.tensor([e["labels"] for e in examples]),
        }


def model() -> ViTForImageClassification:
    return ViTForImageClassification(
        ViTConfig(
            image_size=SIDE,
            patch_size=8,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            hidden_dropout_prob=0.1,
            num_labels=4,
        )
    )


def options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--out", default="hf-leak", help="folder of the checkpoints")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--examples", type=int, default=320)
    p.add_argument("--leak-mib", type=float, default=8, help="kept at each step")
    p.add_argument("--step-ms", type=float, default=20, help="a step takes this much longer")
    p.add_argument("--save-steps", type=int, default=0, help="0: only when ebb asks")
    p.add_argument("--callback", action="store_true", help="name ebb's callback here")
    return p


def main(arguments: "list[str] | None" = None) -> Trainer:
    o = options().parse_args(arguments)
    callbacks = []
    if o.callback:
        from ebb.hf import EbbCallback

        callbacks.append(EbbCallback())
    set_seed(1)
    trainer = Trainer(
        model=model(),
        args=TrainingArguments(
            output_dir=o.out,
            max_steps=o.steps,
            per_device_train_batch_size=4,
            save_strategy="steps" if o.save_steps else "no",
            save_steps=o.save_steps or 500,
            save_total_limit=2,
            logging_steps=20,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            seed=1,
        ),
        train_dataset=Images(o.examples),
        data_collator=Hoarder(o.leak_mib, o.step_ms),
        callbacks=callbacks,
    )
    trainer.train()
    trainer.save_model(f"{o.out}/final")
    return trainer


if __name__ == "__main__":
    main()
