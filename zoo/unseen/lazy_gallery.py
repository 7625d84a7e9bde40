"""Fine-tuning on a gallery of images with the Hugging Face Trainer. All images are opened once, at the
start."""
import argparse
import json
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


def paint(folder, count, side):
    rng = np.random.default_rng(2)
    for i in range(count):
        small = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
        small.resize((side, side)).save(os.path.join(folder, f"{i:04}.jpg"), quality=80)
    return sorted(os.path.join(folder, f) for f in os.listdir(folder))


class Gallery(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.samples = [{"image": Image.open(p), "label": k % 5} for k, p in enumerate(paths)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


class Collator:
    """Converts images into a batch of floats."""

    def __init__(self, keep):
        self.keep, self.done = keep, []

    def __call__(self, items):
        pictures = [item["image"].convert("RGB") for item in items]
        if self.keep:
            self.done.extend(pictures)
        pixels = [np.asarray(p.resize((48, 48)), dtype=np.float32) / 255 for p in pictures]
        return {"pixels": torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2),
                "labels": torch.tensor([item["label"] for item in items])}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, stride=3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(),
                                  nn.Linear(256, 5))

    def forward(self, pixels, labels=None):
        logits = self.body(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Pace(TrainerCallback):
    def __init__(self, pause, live):
        self.pause, self.live, self.truth, self.began = pause, live, [], time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 15 == 0 or state.global_step == 1:
            self.truth.append([state.global_step, self.live(),
                               int(open("/proc/self/statm").read().split()[1]) * 4096])
        time.sleep(max(0, self.began + state.global_step * self.pause - time.monotonic()))


def pixels_bytes(image):
    decoded = vars(image).get("_im", vars(image).get("im"))  # the value depends on the version of Pillow
    return 0 if decoded is None else 4 * image.width * image.height


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--leak", action="store_true", help="the collator keeps its pictures")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    count, epochs, pause = (32, 2, 0) if a.tiny else (240, 3, 0.22)
    folder = tempfile.mkdtemp()
    gallery = Gallery(paint(folder, count, 380))
    held_out = torch.utils.data.Subset(gallery, range(16))
    collate = Collator(a.leak)

    def live():
        return sum(pixels_bytes(s["image"]) for s in gallery.samples) + sum(map(pixels_bytes, collate.done))
    pace = Pace(pause, live)
    out = tempfile.mkdtemp()
    Trainer(
        model=Model(), train_dataset=gallery, eval_dataset=held_out, data_collator=collate, callbacks=[pace],
        args=TrainingArguments(
            output_dir=out, num_train_epochs=epochs, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            eval_strategy="steps", eval_steps=30, save_strategy="steps", save_steps=30, save_total_limit=1,
            logging_steps=20, report_to="none", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
            remove_unused_columns=False, label_names=["labels"])).train()
    print("TRUTH", json.dumps({"step_live_rss": pace.truth}))
    for f in (folder, out):
        shutil.rmtree(f, ignore_errors=True)


if __name__ == "__main__":
    main()
