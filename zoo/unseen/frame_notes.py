"""A training log records which line each value comes from. To do so, it keeps the caller's frame, and with it all local
variables of the caller, such as the batch and its features. --line keeps only the line number. (goggles #220, pandas
#54628)"""
import sys

import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, SIDE = (2, 4, 4, 16) if TINY else (5, 41, 12, 44)


class Log:
    def __init__(self, line_only):
        self.line_only, self.rows = line_only, []

    def note(self, name, value):
        frame = sys._getframe(1)
        self.rows.append((name, value, (frame.f_code.co_name, frame.f_lineno) if self.line_only else frame))

    def table(self, count):
        for name, value, place in self.rows[-count:]:
            function, line = place if self.line_only else (place.f_code.co_name, place.f_lineno)
            print(f"{name} {value:.3f} in line {line} of {function}")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 24, 3, 2), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(24 * 9, 6))


def train_batch(net, best, batch, labels, log):
    """Trains on one batch, and logs the spread of the features."""
    features = net.body(batch)
    loss = nn.functional.cross_entropy(net.head(features), labels)
    best.zero_grad()
    loss.backward()
    best.step()
    spread = features.detach().std((0, 2, 3))
    log.note("loss", loss.item())
    log.note("spread", spread.mean().item())
    return batch.nbytes + features.nbytes


def main():
    torch.manual_seed(45)
    torch.set_num_threads(1)
    pictures = torch.rand(STEPS * BATCH, 3, SIDE, SIDE)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures, torch.arange(STEPS * BATCH) % 6),
                                         batch_size=BATCH, shuffle=True)
    net, log = Net(), Log(flag("--line"))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n, live = Tally(0.21), 0, 0
    for _ in range(EPOCHS):
        for batch, labels in loader:
            used = train_batch(net, best, batch, labels, log)
            n += 1
            live += 0 if flag("--line") else used
            tally.step(n, live)
    log.table(4)
    tally.end()


if __name__ == "__main__":
    main()
