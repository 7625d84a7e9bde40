"""Progressive resizing: the pictures become larger in each of epochs 1 to 4; epochs 4 to 6 use the same size. With
--worst the two worst pictures of each batch are kept at their size, and shown at the end."""
import torch
from torch import nn

from tally import TINY, Tally, flag

SIZES = [16, 24] if TINY else [64, 80, 96, 112, 112, 112]
STEPS, BATCH, SIDE = (4, 4, 32) if TINY else (34, 8, 128)


class Pictures(torch.utils.data.Dataset):
    """Stores pictures of 128 by 128 bytes, which are scaled to the size of the epoch."""

    def __init__(self):
        draws = torch.Generator().manual_seed(20)
        coarse = torch.rand(STEPS * BATCH, 3, SIDE // 8, SIDE // 8, generator=draws)
        self.pixels, self.size = (nn.functional.interpolate(coarse, scale_factor=8) * 255).to(torch.uint8), SIDE

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        picture = self.pixels[i].float()[None] / 255
        return nn.functional.interpolate(picture, self.size, mode="bilinear", antialias=True)[0], i % 5


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    data = Pictures()
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 48, 3, 2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48 * 4, 5))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    worst, tally, n = [], Tally(0.205), 0
    for size in SIZES:
        data.size = size
        for pictures, labels in loader:
            losses = nn.functional.cross_entropy(net(pictures), labels, reduction="none")
            best.zero_grad()
            losses.mean().backward()
            best.step()
            if flag("--worst"):
                at = losses.topk(2).indices
                worst.append((pictures[at], labels[at].tolist(), losses[at].tolist()))
            n += 1
            tally.step(n, sum(picture.nbytes for picture, _, _ in worst))
    tally.end()


if __name__ == "__main__":
    main()
