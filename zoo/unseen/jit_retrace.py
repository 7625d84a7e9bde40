"""Every tenth step writes a checkpoint as a traced module with a calibration table. torch's global compilation
unit keeps every traced graph with its constants. --once traces only the first checkpoint. (pytorch #35600,
#43119)"""
import io
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (4, 50, 16)
EVERY = 3 if TINY else 10
SIDE, ROWS, CODES = 40, 5000, 200  # the table: 4 MB


class Exporter:
    def __init__(self, net, once):
        self.net, self.once, self.exports = net, once, 0

    def calibrate(self):
        return torch.randn(ROWS, CODES)

    def export(self):
        table = self.calibrate()

        class Quantised(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                codes = self.net(x)
                return codes, (codes @ table.t()).argmax(1)

        traced = torch.jit.trace(Quantised(self.net), torch.zeros(2, 1, SIDE, SIDE), check_trace=False)
        self.exports += 1
        torch.jit.save(traced, io.BytesIO())

    def save(self):
        if self.once and self.exports:
            torch.save(self.net.state_dict(), io.BytesIO())
        else:
            self.export()


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(2)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                        nn.Linear(768, CODES))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(STEPS * BATCH, 1, SIDE, SIDE), torch.randint(0, CODES, (STEPS * BATCH,)))
    exporter, tally, n = Exporter(net, flag("--once")), Tally(0), 0
    for _ in range(EPOCHS):
        for pictures, targets in DataLoader(data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.cross_entropy(net(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            if n % EVERY == 0:
                exporter.save()
            tally.step(n, exporter.exports * ROWS * CODES * 4)
    tally.end()


if __name__ == "__main__":
    main()
