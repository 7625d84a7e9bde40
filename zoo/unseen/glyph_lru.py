"""A function with lru_cache(maxsize=264) draws formulas as images. The cache is full after two thirds of the run; then
the oldest images are evicted. --no-limit sets maxsize=None."""
import functools

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 3) if TINY else (4, 50, 3)
LIMIT = 10 if TINY else 264
SIZE = (400, 360)  # of 8 bits: 144 kB


@functools.lru_cache(maxsize=None if flag("--no-limit") else LIMIT)
def draw(formula):
    picture = Image.new("L", SIZE, 255)
    pen = ImageDraw.Draw(picture)
    for k, sign in enumerate(formula):
        pen.text((6 + k * 9, 40 + (k * 7) % 90), sign, fill=0)
    pen.line((0, len(formula), SIZE[0], SIZE[1] - len(formula)), fill=90)
    return np.asarray(picture).copy()  # 144 kB


class Formulas(torch.utils.data.IterableDataset):
    """Yields pictures of formulas. Two thirds of the formulas are new; the others were drawn just before."""

    def __init__(self):
        self.n = 0

    def __iter__(self):
        for i in range(STEPS * BATCH):
            if i % BATCH:
                self.n += 1
            picture = draw(f"f_{self.n}(x)=x^{self.n % 17}+{self.n * 31 % 97}")
            yield torch.from_numpy(picture[::4, ::4].astype(np.float32) / 255), self.n % 17


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(90 * 100, 32), nn.ReLU(), nn.Linear(32, 17))
    optimizer, formulas, tally, n = torch.optim.SGD(net.parameters(), lr=0.01), Formulas(), Tally(0.2), 0
    for _ in range(EPOCHS):
        for x, y in torch.utils.data.DataLoader(formulas, batch_size=BATCH):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            tally.step(n, draw.cache_info().currsize * SIZE[0] * SIZE[1])
    tally.end()


if __name__ == "__main__":
    main()
