"""The training job for which ebb was written. The Hugging Face Trainer fine-tunes a vision-language model on 663 images
for three epochs, in batches of 2, and accumulates gradients over 4 batches. Every 100 steps it evaluates the model and
writes a checkpoint. Memory climbs at every step of the first epoch.

    ebb run -n seed -- python examples/seed_case.py
    ebb run -n seed -- python examples/seed_case.py --fixed         # decoded when needed
    ebb run -n seed -- python examples/seed_case.py --width 320 --height 256 --epochs 1    # small

The program does not use ebb. The images are opened before the training; this reads only their headers. The collator
decodes each image on first use, and the list of images keeps the decoded pixels. docs/guide/tour.md explains the case.
"""

import argparse
import math
import os
import shutil
import tempfile

import numpy
import torch
from PIL import Image
from transformers import (
    CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, Trainer, TrainingArguments,
)

IMAGE_TOKEN, PATCHES, SIDE = 1, 64, 112  # An image has 8 x 8 patches of 14 x 14 pixels.


def options():
    parser = argparse.ArgumentParser(description="fine-tune a small vision-language model on lazily opened images")
    parser.add_argument("--images", type=int, default=663)
    parser.add_argument("--width", type=int, default=2560)
    parser.add_argument("--height", type=int, default=2048)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations, and checkpoints")
    parser.add_argument("--eval-images", type=int, default=24)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="keep paths, and decode each time")
    parser.add_argument("--seconds-per-step", type=float, default=0, help="take at least so long")
    return parser.parse_args()


def write_images(folder, count, size):
    """Creates JPEG files that resemble photographs: a few base images with different brightness."""
    coarse = Image.effect_noise((40, 32), 80).convert("RGB")
    paths = []
    for i in range(count):
        path = os.path.join(folder, f"{i:04}.jpg")
        if i < 8:
            coarse.point(lambda v, i=i: min(255, v + 8 * i)).resize(size).save(path, quality=80)
        else:
            shutil.copy(paths[i % 8], path)
        paths.append(path)
    return paths


class Examples(torch.utils.data.Dataset):
    """A data set with one image and one sentence per example."""

    def __init__(self, paths, fixed):
        self.fixed = fixed
        self.images = paths if fixed else [Image.open(path) for path in paths]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.open(self.images[i]) if self.fixed else self.images[i]
        return {"image": image, "text": [2 + (i + k) % 500 for k in range(32)]}


def collate(examples):
    """Builds the batch: scaled pixels of each image, and its tokens after the image tokens."""
    pixels = [
        numpy.asarray(e["image"].convert("RGB").resize((SIDE, SIDE)), dtype=numpy.float32) / 255 for e in examples
    ]
    ids = torch.tensor([[IMAGE_TOKEN] * PATCHES + e["text"] for e in examples])
    return {
        "pixel_values": torch.from_numpy(numpy.stack(pixels)).permute(0, 3, 1, 2),
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": ids.masked_fill(ids == IMAGE_TOKEN, -100),
    }


def vision_language_model(args):
    """Returns a Llava model with small random weights."""
    vision = CLIPVisionConfig(
        image_size=SIDE, patch_size=14, hidden_size=args.hidden, intermediate_size=2 * args.hidden,
        num_hidden_layers=args.layers, num_attention_heads=4,
    )
    text = LlamaConfig(
        vocab_size=512, hidden_size=args.hidden, intermediate_size=2 * args.hidden,
        num_hidden_layers=args.layers, num_attention_heads=4, num_key_value_heads=4,
    )
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_id=IMAGE_TOKEN)
    )


class Paced(Trainer):
    """Makes a step take as long as it does with the real model, several seconds."""

    least_s = 0.0

    def training_step(self, *args, **kwargs):
        import time

        began = time.monotonic()
        loss = super().training_step(*args, **kwargs)
        time.sleep(max(0.0, self.least_s / self.args.gradient_accumulation_steps - time.monotonic() + began))
        return loss


def main():
    args = options()
    folder = tempfile.mkdtemp(prefix="seed-case-")
    try:
        paths = write_images(folder, args.images + args.eval_images, (args.width, args.height))
        train = Examples(paths[: args.images], args.fixed)
        settings = TrainingArguments(
            output_dir=os.path.join(folder, "out"), num_train_epochs=args.epochs,
            per_device_train_batch_size=2, gradient_accumulation_steps=4, per_device_eval_batch_size=2,
            eval_strategy="steps", eval_steps=args.every, save_strategy="steps", save_steps=args.every,
            save_total_limit=1, logging_steps=10, remove_unused_columns=False, report_to=[], disable_tqdm=True,
            prediction_loss_only=True,
        )
        trainer = Paced(
            model=vision_language_model(args), args=settings, data_collator=collate, train_dataset=train,
            eval_dataset=Examples(paths[args.images :], args.fixed),
        )
        trainer.least_s = args.seconds_per_step
        steps = math.ceil(args.images / 8)
        print(f"{args.images} images of {args.width} x {args.height}, {steps} steps an epoch", flush=True)
        trainer.train()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
