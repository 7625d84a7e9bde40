"""Position tables are cached by the height and width of a picture. There are 120 different sizes, drawn at random, so
the cache is full after about two epochs. With --tensor-key the key is a tensor, which is hashed by identity, so a
cached table is never found again. (pytorch #112301, tensordict #454)"""
import functools

import torch
from torch import nn

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (2, 5) if TINY else (5, 40)
EACH_STEP, HEIGHTS, WIDTHS, PLACES, WIDTH = 6, 10, 12, 256, 128


@functools.cache
def table(size):
    height, width = (int(side) for side in size)
    place = torch.arange(PLACES)
    rows, columns = place // width % height, place % width
    turns = torch.exp(-torch.arange(WIDTH // 4) / 8)
    parts = [rows[:, None] * turns, columns[:, None] * turns]
    return torch.cat([part for half in parts for part in (half.sin(), half.cos())], 1).contiguous()


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    draws, by_tensor = torch.Generator().manual_seed(7), flag("--tensor-key")
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 256, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(WIDTH, 6))
    best = torch.optim.Adam(net.parameters(), 1e-3)
    ebb, tally, n = marks(), Tally(0.21), 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            sizes = torch.stack([torch.randint(8, 8 + HEIGHTS, (EACH_STEP,), generator=draws),
                                 torch.randint(8, 8 + WIDTHS, (EACH_STEP,), generator=draws)], 1)
            tables = [table(size if by_tensor else tuple(size.tolist())) for size in sizes]
            pictures = torch.randn(EACH_STEP, PLACES, WIDTH, generator=draws) + torch.stack(tables)
            loss = nn.functional.cross_entropy(net(pictures).mean(1), sizes.sum(1) % 6)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, table.cache_info().currsize * PLACES * WIDTH * 4)
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
