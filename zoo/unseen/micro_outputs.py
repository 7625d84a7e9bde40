"""Gradients are accumulated over four micro-batches. A meter keeps the outputs of all micro-batches, although the value
logged per step needs only the last four outputs. With --clear the meter is cleared after each step."""
from kit import Ledger, Pace, options, torch_cpu

MICRO, BATCH, CLASSES = 4, 16, 4096
EPOCHS, STEPS = 4, 45

opts = options("--clear")
torch = torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.outputs = []
        self.targets = []

    def update(self, out, target):
        self.outputs.append(out)
        self.targets.append(target)

    def accuracy(self):
        recent = zip(self.outputs[-MICRO:], self.targets[-MICRO:])
        return sum((out.argmax(1) == target).float().mean().item() for out, target in recent) / MICRO

    def clear(self):
        self.outputs.clear()
        self.targets.clear()

    def live(self):
        return sum(t.untyped_storage().nbytes() for t in self.outputs + self.targets)


def micro_batch(model, x, y, meter):
    out = model(x)
    loss = nn.functional.cross_entropy(out, y) / MICRO
    loss.backward()
    meter.update(out.detach(), y)
    return loss.item()


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    rows = steps * MICRO * BATCH
    data = TensorDataset(torch.randn(rows, 48), torch.randint(0, CLASSES, (rows,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meter, pace, ledger = Meter(), Pace(0.18, opts.tiny), Ledger()
    step = 0
    for _ in range(epochs):
        for micro, (x, y) in enumerate(loader, 1):
            micro_batch(model, x, y, meter)
            if micro % MICRO:
                continue
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            meter.accuracy()
            if opts.twin:
                meter.clear()
            pace.tick()
            if step == 1 or step % 6 == 0:
                ledger.note(step, meter.live())
    ledger.close(epochs, steps)


main()
