"""A mixture of experts: an expert's gradients and moments are allocated at its first use. Domains, which use different
experts, are added one after another until the end of the second epoch. With --rebirth, idle experts are replaced by new
ones from the fourth epoch on, and the optimizer keeps the old ones."""
import kit
from marks import teller
opt = kit.options("--rebirth")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, EXPERTS, OPEN, EVERY = (5, 8, 5, 3, 2) if opt.tiny else (5, 52, 26, 4, 4)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.165, opt.tiny), teller(opt.no_marks)


class Expert(nn.Module):
    """An expert has 262 thousand weights: 1.05 MB, or 3.1 MB with both moments."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 512, bias=False), nn.Linear(512, 256, bias=False)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.head = nn.Linear(256, 256)

    def forward(self, x, domain):
        return self.head(self.experts[domain](x))


def rebirth(model, adam, domain):
    fresh = model.experts[domain] = Expert()
    adam.add_param_group({"params": list(fresh.parameters())})


def live(model, adam):
    """Returns the bytes of weights, moments and gradients of all parameters in the optimizer."""
    params = [p for group in adam.param_groups for p in group["params"]]
    moments = [t for state in adam.state.values() for t in state.values() if torch.is_tensor(t)]
    return sum(t.nbytes for t in params + moments) + sum(
        p.grad.nbytes for p in params if p.grad is not None)


maker = torch.Generator().manual_seed(2)
data = torch.randn(STEPS * 32, 256, generator=maker)
model = Mixture()
adam = torch.optim.Adam(model.parameters(), lr=1e-4)
n = 0
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    order = torch.randperm(STEPS, generator=maker).tolist()
    for i in order:
        opened = min(EXPERTS, 1 + n // OPEN)
        domains = {opened - 1, n % opened}
        x = data[i * 32:(i + 1) * 32]
        loss = sum((model(x, domain) - x.roll(domain, 1)).square().mean() for domain in domains)
        adam.zero_grad()
        loss.backward()
        adam.step()
        n += 1
        if opt.twin and epoch >= 3 and n % EVERY == 0:
            rebirth(model, adam, (n // EVERY) % EXPERTS)
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4))
        if n == 1 or n % 13 == 0:
            ledger.note(n, live(model, adam))
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
