"""Progressive stacking: the network gets another block every 15 steps. Halfway through the run it has eight blocks, and
then keeps its size. With --freeze-old the older blocks are frozen and their Adam moments freed. Neither variant
leaks."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 6, 8) if TINY else (4, 48, 16)
WIDTH, EVERY, MOST = (64, 2, 4) if TINY else (560, 15, 8)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([nn.Linear(WIDTH, WIDTH)]), nn.Linear(WIDTH, 5)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x).tanh()
        return self.head(x)


def grow(net, optimizer):
    block = nn.Linear(WIDTH, WIDTH)
    block.load_state_dict(net.blocks[-1].state_dict())
    if flag("--freeze-old"):
        old = list(net.blocks[-1].parameters())
        for p in old:
            p.requires_grad_(False)
            p.grad = None
            optimizer.state.pop(p, None)
        gone = {id(p) for p in old}
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in gone]
    net.blocks.append(block)
    optimizer.add_param_group({"params": list(block.parameters())})


def size(net, optimizer):
    own = sum(p.nbytes + (p.grad.nbytes if p.grad is not None else 0) for p in net.parameters())
    return own + sum(t.nbytes for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    rows = STEPS * BATCH
    data = TensorDataset(torch.randn(rows, WIDTH), torch.randint(0, 5, (rows,)))
    net, tally, n = Stack(), Tally(0.2), 0
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _ in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            if n % EVERY == 0 and len(net.blocks) < MOST:
                grow(net, optimizer)
            tally.step(n, size(net, optimizer))
    tally.end()


if __name__ == "__main__":
    main()
