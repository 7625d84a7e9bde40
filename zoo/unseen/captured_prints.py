"""The output of the training is captured in one StringIO and read at the end. The StringIO reallocates its buffer now
and then. --flush empties the StringIO after each epoch."""
import contextlib
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (5, 44, 16)


def show(outputs):
    for row in outputs.tolist():
        print(" ".join(f"{value:.9f}" for value in row))


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(300, 400), nn.Tanh(), nn.Linear(400, 700))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(STEPS * BATCH, 300), torch.randn(STEPS * BATCH, 700)), BATCH)
    captured, tally, n = io.StringIO(), Tally(0.18), 0
    for _ in range(EPOCHS):
        for x, y in loader:
            outputs = net(x)
            loss = nn.functional.mse_loss(outputs, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with contextlib.redirect_stdout(captured):
                show(outputs)
            n += 1
            tally.step(n, captured.tell())
        if flag("--flush"):
            captured.seek(0)
            captured.truncate()
    tally.end()


if __name__ == "__main__":
    main()
