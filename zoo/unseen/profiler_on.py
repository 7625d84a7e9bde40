"""A profiler was switched on to inspect a few steps and left on; it keeps an event for each operation. With --schedule
it is on during three steps of each epoch, and its events are freed."""
import ctypes
import gc

from kit import Ledger, Pace, options, torch_cpu

EPOCHS, STEPS, BATCH = 4, 45, 16
LAYERS = 30

opts = options("--schedule")
torch = torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo


def live():
    """Returns the bytes in use according to malloc; the events are not Python objects."""
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(LAYERS))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * 0.1
        return self.head(x)


def train_step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def profiler():
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)


def main():
    epochs, steps = (1, 8) if opts.tiny else (EPOCHS, STEPS)
    rows = steps * BATCH
    loader = DataLoader(TensorDataset(torch.randn(rows, 16), torch.randint(0, 4, (rows,))), batch_size=BATCH,
                        shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    pace, ledger, step = Pace(0.18, opts.tiny), Ledger(), 0
    watching = None
    if not opts.twin:
        watching = profiler()
        watching.start()
    for _ in range(epochs):
        for i, (x, y) in enumerate(loader):
            if opts.twin and i == 4:
                watching = profiler()
                watching.start()
            train_step(model, optimizer, x, y)
            if opts.twin and i == 6:
                watching.stop()
                watching = None
                gc.collect()
            step += 1
            pace.tick()
            if step == 1 or step % 6 == 0:
                ledger.note(step, live())
    ledger.close(epochs, steps)
    if watching:
        torch.autograd._disable_profiler()  # the profiler must be stopped before the interpreter exits


main()
