"""Temporal ensembling: the target is a running average of the logits of a second view. The average keeps the autograd
graph of every view, because a call of .detach() is missing; --detach adds it."""
import kit
opt = kit.options("--detach")
torch = kit.torch_cpu()
from torch import nn
import torch.nn.functional as F
EPOCHS, STEPS, BATCH = (2, 5, 96) if opt.tiny else (4, 42, 96)
ledger, pace = kit.Ledger(), kit.Pace(0.2, opt.tiny)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(864, 768), nn.Linear(768, 768), nn.Linear(768, 100)

    def forward(self, x):
        return self.out(F.relu(self.b(F.relu(self.a(x)))))


class Ensemble:
    def __init__(self, keep=0.97):
        self.avg, self.keep = torch.zeros(100), keep

    def update(self, net, x):
        logits = net(x + 0.1 * torch.randn_like(x))
        mean = logits.mean(0)
        if opt.twin:
            mean = mean.detach()
        self.avg = self.keep * self.avg + (1 - self.keep) * mean
        return self.avg.detach()


def graph_bytes(t, own):
    todo, seen, blocks = [t.grad_fn], set(), {}
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    v = getattr(node, name)
                except RuntimeError:
                    continue  # a saved weight cannot be read once the optimizer has updated it
                if isinstance(v, torch.Tensor) and v.data_ptr() not in own:
                    blocks[v.untyped_storage().data_ptr()] = v.untyped_storage().nbytes()
        todo += [n for n, _ in node.next_functions]
    return sum(blocks.values())


data = torch.utils.data.TensorDataset(torch.rand(STEPS * BATCH, 864),
                                      torch.randint(0, 100, (STEPS * BATCH,)))
loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
net, ens = Net(), Ensemble()
own = {p.data_ptr() for p in net.parameters()}
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
n = 0
for epoch in range(EPOCHS):
    for x, y in loader:
        target = ens.update(net, x)
        logits = net(x)
        loss = F.cross_entropy(logits, y) + 0.1 * F.mse_loss(logits.mean(0), target)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        n += 1
        pace.tick()
        if n == 1 or n % STEPS == 0:
            ledger.note(n, graph_bytes(ens.avg, own) if ens.avg.grad_fn else 0)
ledger.close(EPOCHS, STEPS)
