"""Two workers read an endless stream of clips faster than training uses them: the number of batches that wait in shared
memory grows to 60, the loader's limit. With --hard the loop also keeps the four hardest clips of each batch. (pytorch
#44528, #5902)"""
import time

import torch
from torch import nn

from tally import TINY, Tally, flag

STEPS, BATCH, AHEAD, FRAMES, SIDE = (8, 4, 3, 2, 16) if TINY else (205, 12, 30, 6, 56)
READING = 0 if TINY else 0.16  # seconds that a worker needs per batch


class Clips(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        draws = torch.Generator().manual_seed(worker)
        while True:
            label = int(torch.randint(0, 4, (1,), generator=draws))
            time.sleep(READING / BATCH)
            yield torch.rand(FRAMES, SIDE, SIDE, generator=draws) + label / 4, label


def main():
    torch.manual_seed(21)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Clips(), batch_size=BATCH, num_workers=2, prefetch_factor=AHEAD)
    net = nn.Sequential(nn.Conv2d(FRAMES, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
                        nn.Flatten(), nn.Linear(32 * 9, 4))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    hard, tally = [], Tally(0.21)
    for n, (clips, labels) in enumerate(loader, 1):
        losses = nn.functional.cross_entropy(net(clips), labels, reduction="none")
        best.zero_grad()
        losses.mean().backward()
        best.step()
        if flag("--hard"):
            at = losses.topk(4).indices
            hard.append((clips[at], losses[at].tolist()))
        tally.step(n, sum(kept.nbytes for kept, _ in hard))
        if n == STEPS:
            break
    tally.end()


if __name__ == "__main__":
    main()
