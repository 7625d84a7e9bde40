"""Contrastive training with a bank for the keys of the last 75 batches. The bank is full after one and a half epochs.
With --all-keys the bank has no limit."""
from collections import deque

from kit import Ledger, Pace, options, torch_cpu

EPOCHS, STEPS, BATCH, DIM, ROOM = 5, 50, 128, 2048, 75

opts = options("--all-keys")
torch = torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Bank:
    def __init__(self, room):
        self.keys = deque(maxlen=room)

    def enqueue(self, keys):
        self.keys.append(keys)

    def negatives(self):
        return torch.stack([keys[:4] for keys in list(self.keys)[-8:]]).flatten(0, 1)

    def live(self):
        return sum(keys.nbytes for keys in self.keys)


@torch.no_grad()
def encode_keys(momentum_net, x):
    return nn.functional.normalize(momentum_net(x), dim=1)


@torch.no_grad()
def follow(momentum_net, net):
    for slow, fast in zip(momentum_net.parameters(), net.parameters()):
        slow.lerp_(fast, 0.01)


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    loader = DataLoader(TensorDataset(torch.randn(steps * BATCH, 24)), batch_size=BATCH, shuffle=True)
    net, momentum_net = nn.Linear(24, DIM), nn.Linear(24, DIM)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    bank = Bank(None if opts.twin else ROOM)
    pace, ledger, step = Pace(0.135, opts.tiny), Ledger(), 0
    for _ in range(epochs):
        for (x,) in loader:
            keys = encode_keys(momentum_net, x + 0.1 * torch.randn_like(x))
            query = nn.functional.normalize(net(x), dim=1)
            logits = (query * keys).sum(1, keepdim=True)
            if bank.keys:
                logits = torch.cat([logits, query @ bank.negatives().T], 1)
            loss = nn.functional.cross_entropy(logits / 0.2, torch.zeros(len(x), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow(momentum_net, net)
            bank.enqueue(keys)
            step += 1
            pace.tick()
            if step == 1 or step % 10 == 0:
                ledger.note(step, bank.live())
    ledger.close(epochs, steps)


main()
