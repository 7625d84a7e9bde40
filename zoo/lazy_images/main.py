"""A list of lazily opened images: each image is decoded at its first access and stays decoded."""

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
    """Image.open reads only a header; the pixels are read at the first access and kept."""

    def __init__(self, paths, twin):
        self.paths = paths
        self.twin = twin
        self.views = [[Image.open(path) for path in paths]]

    def start_epoch(self):
        if self.twin:
            self.views.append([Image.open(path) for path in self.paths])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return common.picture_tensor(self.views[-1][index]), index % 10

    def live_bytes(self):
        return sum(common.picture_bytes(image) for view in self.views for image in view)


def main():
    job = common.Job(__doc__, "--leak", "open the list again each epoch, and keep the old one")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    data = Pictures(common.write_pictures(job.folder, examples, SIDE), job.twin)
    loader = DataLoader(data, BATCH, shuffle=True)
    model = common.picture_model()
    optimizer = torch.optim.AdamW(model.parameters())
    job.begin(examples, BATCH)
    for epoch in range(job.epochs):
        if epoch:
            data.start_epoch()
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            job.step(data.live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
