"""Four threads decode and crop photographs of widely varying size; --sheet keeps a thumbnail of each rejected crop, for
a contact sheet that is never drawn."""
import io
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH, PHOTOS = (6, 3, 8) if TINY else (190, 38, 76)
BATCH, SIDE, THUMB = 6, 96, 112


def make_photos(rng):
    """Creates JPEGs of 0.1 to 1.7 megapixels."""
    photos = []
    for i in range(PHOTOS):
        wide = int(rng.choice([360, 480, 640, 900, 1200, 1500]))
        low = np.random.default_rng(i).integers(0, 255, (12, 16, 3), dtype=np.uint8)
        photo = Image.fromarray(low).resize((wide, wide * 3 // 4), Image.Resampling.BICUBIC)
        out = io.BytesIO()
        photo.save(out, "JPEG")
        photos.append(out.getvalue())
    return photos


class Sheet:
    def __init__(self):
        self.thumbs = []

    def add(self, crop):
        self.thumbs.append(crop.resize((THUMB, THUMB)))

    def size(self):
        return sum(4 * thumb.width * thumb.height for thumb in self.thumbs)  # Pillow uses four bytes per RGB pixel


def augment(photo, seed, sheet):
    rng = random.Random(seed)
    image = Image.open(io.BytesIO(photo)).convert("RGB")
    for _ in range(2):
        side = int(min(image.size) * rng.uniform(0.4, 1))
        x, y = rng.randint(0, image.width - side), rng.randint(0, image.height - side)
        crop = image.crop((x, y, x + side, y + side))
        if rng.random() < 0.7:
            break
        if sheet is not None:
            sheet.add(crop)
    crop = ImageEnhance.Color(crop.resize((SIDE, SIDE))).enhance(rng.uniform(0.6, 1.4))
    if rng.random() < 0.3:
        crop = crop.filter(ImageFilter.GaussianBlur(1))
    return np.asarray(crop, np.float32).transpose(2, 0, 1) / 255


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    rng = random.Random(7)
    photos, sheet = make_photos(rng), Sheet() if flag("--sheet") else None
    model = nn.Sequential(nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 23 * 23, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ebb, tally = marks(), Tally(0.18)
    with ThreadPoolExecutor(4) as pool:
        for n in range(1, STEPS + 1):
            batch = [(photos[rng.randrange(PHOTOS)], rng.random(), sheet) for _ in range(BATCH)]
            x = torch.from_numpy(np.stack(list(pool.map(lambda each: augment(*each), batch))))
            loss = nn.functional.cross_entropy(model(x), torch.arange(BATCH) % 5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tally.step(n, sheet.size() if sheet else 0)
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
