"""Each evaluation draws a figure and writes it to a file, but does not close the figure."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy
import torch
from torch import nn

BATCH = 32
WIDTH = 512
EVERY = 15  # steps between evaluations


def plot_weights(model, path, twin):
    """Draws the weights of three layers as heat maps: about 16 MB per figure."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 5), dpi=220)
    for axis, layer in zip(axes, [m for m in model if isinstance(m, nn.Linear)]):
        axis.imshow(layer.weight.detach().numpy().astype(numpy.float64), aspect="auto")
    figure.savefig(path)
    if twin:
        plt.close(figure)


def live_bytes():
    """Returns the bytes of all open figures: their canvases and their data."""
    total = 0
    for number in plt.get_fignums():
        figure = plt.figure(number)
        total += figure.canvas.get_renderer().buffer_rgba().nbytes
        for axis in figure.axes:
            total += sum(image.get_array().nbytes for image in axis.images)
    return total


def main():
    job = common.Job(__doc__, "--fixed", "close the figure")
    common.settle()
    examples = job.steps_per_epoch * BATCH
    inputs, labels = torch.randn(examples, WIDTH), torch.randint(10, (examples,))
    model = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    live = 0
    job.begin(examples, BATCH)
    for _ in range(job.epochs):
        for batch in torch.randperm(examples).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            job.step(live)
            if job.step_now % EVERY == 0:
                plot_weights(model, os.path.join(job.folder, "weights.png"), job.twin)
                live = live_bytes()
                job.evaluated()
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
