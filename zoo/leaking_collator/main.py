"""A collator keeps the images of every batch "for debugging"."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 2
SIDE = 384


class Pictures(Dataset):
    """Opens each image every time it is requested."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index])
        image.load()
        return image, index % 10


class Collator:
    def __init__(self, twin):
        self.twin = twin
        self.seen = []
        self.live_bytes = 0

    def __call__(self, batch):
        images = [image for image, _ in batch]
        if not self.twin:
            self.remember(images)
        labels = torch.tensor([label for _, label in batch])
        return torch.stack([common.picture_tensor(image) for image in images]), labels

    def remember(self, images):
        self.seen.extend(images)
        self.live_bytes += sum(common.picture_bytes(image) for image in images)


def main():
    job = common.Job(__doc__, "--fixed", "the collator remembers nothing")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    collator = Collator(job.twin)
    paths = common.write_pictures(job.folder, examples, SIDE)
    loader = DataLoader(Pictures(paths), BATCH, shuffle=True, collate_fn=collator)
    model = common.picture_model()
    optimizer = torch.optim.AdamW(model.parameters())
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            job.step(collator.live_bytes)
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
