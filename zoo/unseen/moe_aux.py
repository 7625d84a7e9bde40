"""A mixture of experts. Each layer stores the routing probabilities of its batch. After a training batch, the balancing
loss reads the probabilities and removes them; after an evaluation, the report reads them but removes them only with
--clear. (diffusers #11301, composer #11909)"""
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, EVERY = (2, 4, 2) if TINY else (5, 40, 20)
BATCH, TOKENS, WIDTH, EXPERTS, EVALUATED = (4, 16, 64, 16, 8) if TINY else (16, 64, 64, 16, 640)


class Mixture(nn.Module):
    """Routes each token to its two best experts. There are few experts, so all are computed."""

    def __init__(self):
        super().__init__()
        self.route = nn.Linear(WIDTH, EXPERTS)
        self.rise = nn.Parameter(torch.randn(EXPERTS, WIDTH, 20) * 0.1)
        self.fall = nn.Parameter(torch.randn(EXPERTS, 20, WIDTH) * 0.1)
        self.routed = {True: [], False: []}

    def forward(self, x):
        probability = self.route(x).softmax(-1)
        self.routed[self.training].append(probability)
        best, at = probability.topk(2)
        weight = torch.zeros_like(probability).scatter(-1, at, best)
        hidden = torch.einsum("btw,ewh->bteh", x, self.rise).relu()
        return x + torch.einsum("bteh,ehw,bte->btw", hidden, self.fall, weight)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mixtures = nn.Embedding(500, WIDTH), nn.ModuleList(Mixture() for _ in range(3))
        self.head = nn.Linear(WIDTH, 12)

    def forward(self, tokens):
        x = self.embed(tokens)
        for mixture in self.mixtures:
            x = mixture(x)
        return self.head(x)


def balance(net):
    """Returns the balancing loss, and removes the probabilities of this batch."""
    loss = sum((mixture.routed[True].pop().mean((0, 1)) ** 2).sum() for mixture in net.mixtures)
    return 0.01 * EXPERTS * loss


def evaluate(net, loader, clear):
    net.eval()
    with torch.no_grad():
        right = sum((net(tokens).argmax(-1) == tokens % 12).sum().item() for tokens in loader)
    report = [torch.cat(mixture.routed[False][-len(loader):]).mean((0, 1)).max().item() for mixture in net.mixtures]
    if clear:
        for mixture in net.mixtures:
            mixture.routed[False].clear()
    net.train()
    return right, report


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    train, test = torch.randint(0, 500, (STEPS * BATCH, TOKENS)), torch.randint(0, 500, (EVALUATED, TOKENS))
    loader = torch.utils.data.DataLoader(train, batch_size=BATCH, shuffle=True)
    held_out = torch.utils.data.DataLoader(test, batch_size=BATCH)
    net = Tagger()
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.205), 0
    for _ in range(EPOCHS):
        for tokens in loader:
            loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), (tokens % 12).flatten()) + balance(net)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            if n % EVERY == 0:
                evaluate(net, held_out, flag("--clear"))
            held = sum(each.nbytes for mixture in net.mixtures for each in mixture.routed[False])
            tally.step(n, held)
    tally.end()


if __name__ == "__main__":
    main()
