"""A hook on a node of the autograd graph closes over a tensor that refers to the node. Neither reference counting nor
the garbage collector frees this cycle. With --fixed the hook closes over a number computed in advance, not the
tensor."""
import weakref
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, STEPS, BATCH, WIDTH = (3, 6, 128, 2300) if opt.tiny else (3, 100, 128, 2300)
ledger = kit.Ledger()
made = []  # weak references


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(48, WIDTH), nn.Linear(WIDTH, 3)
        self.ratios = []

    def watch(self, h):
        """Logs the gradient of the hidden layer together with its activation."""
        if opt.twin:
            size = h.detach().norm().item()
            h.grad_fn.register_hook(
                lambda gin, gout: self.ratios.append(gout[0].norm().item() / size))
        else:
            h.grad_fn.register_hook(
                lambda gin, gout: self.ratios.append((gout[0].norm() / h.norm()).item()))

    def forward(self, x):
        h = torch.relu(self.up(x))
        if self.training:
            self.watch(h)
            made.append(weakref.ref(h))
        return self.down(h)


def live_bytes():
    return sum(t.numel() * t.element_size() for t in (w() for w in made) if t is not None)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(STEPS * BATCH, 48)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=BATCH, shuffle=True)
    pace, step = kit.Pace(0.125, opt.tiny), 0
    for epoch in range(EPOCHS):
        for bx, by in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(bx), by).backward()
            optimizer.step()
            step += 1
            if step == 1 or step % STEPS == 0:
                ledger.note(step, live_bytes())
            pace.tick()
    ledger.close(EPOCHS, STEPS, expected_per_step=0 if opt.twin else BATCH * WIDTH * 4)


main()
