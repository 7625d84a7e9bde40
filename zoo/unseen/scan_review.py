"""Scans are decoded at the first access and stay decoded, so memory grows until the end of the first epoch. With
--review, the crop with the largest loss of each batch is also kept as an image for a reviewer."""
import io
import numpy as np
import kit
opt = kit.options("--review")
torch = kit.torch_cpu()
from torch import nn
try:
    from PIL import Image, ImageDraw
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, BATCH, SIDE = (2, 5, 4, 400) if opt.tiny else (4, 62, 4, 400)
ledger, pace = kit.Ledger(), kit.Pace(0.17, opt.tiny)


class Scans(torch.utils.data.Dataset):
    def __init__(self):
        rng = np.random.default_rng(8)
        self.files, self.known = [], set()
        # address space for all scans of 480 kB each; only the touched parts become resident
        self.decoded = torch.empty(STEPS * BATCH, SIDE, SIDE, 3, dtype=torch.uint8).numpy()
        for _ in range(STEPS * BATCH):
            small = Image.fromarray(rng.integers(0, 255, (25, 25, 3), dtype=np.uint8))
            with io.BytesIO() as out:
                small.resize((SIDE, SIDE)).save(out, "JPEG")
                self.files.append(out.getvalue())

    def __len__(self):
        return len(self.files)

    def scan(self, i):
        if i not in self.known:
            self.decoded[i] = np.asarray(Image.open(io.BytesIO(self.files[i])).convert("RGB"))
            self.known.add(i)
        return self.decoded[i]

    def __getitem__(self, i):
        y, x = np.random.randint(0, SIDE - 320, 2)
        crop = self.scan(i)[y:y + 320, x:x + 320]
        return torch.from_numpy(np.ascontiguousarray(crop.transpose(2, 0, 1))), i % 7


class Review:
    """An image has 320 x 320 pixels of 4 bytes: 410 kB."""

    def __init__(self):
        self.cases = []

    def add(self, pixels, loss):
        picture = Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))
        ImageDraw.Draw(picture).text((8, 8), f"{loss:.3f}", fill=(255, 0, 0))
        self.cases.append(picture)

    def live(self):
        return sum(p.width * p.height * 4 for p in self.cases)


np.random.seed(1)
data, review, n = Scans(), Review(), 0
net = nn.Sequential(nn.Conv2d(3, 12, 7, stride=4), nn.ReLU(), nn.Conv2d(12, 16, 5, stride=4),
                    nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 7))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
for epoch in range(EPOCHS):
    for x, y in loader:
        losses = nn.functional.cross_entropy(net(x / 255), y, reduction="none")
        adam.zero_grad()
        losses.mean().backward()
        adam.step()
        if opt.twin:
            review.add(x[losses.argmax()], losses.max().item())
        n += 1
        pace.tick()
        if n == 1 or n % 10 == 0 or n % STEPS == 0:
            ledger.note(n, review.live() + len(data.known) * SIDE * SIDE * 3)
ledger.close(EPOCHS, STEPS)
