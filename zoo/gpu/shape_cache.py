"""Attention with a cache of relative-position biases, which depend only on the length of the text. The cache key also
includes the offset of the text, so no key recurs. --fixed omits the offset, so the cache is full after one epoch."""
import torch
from torch import nn

from kit import DEVICE, EPOCHS, FIXED, STEPS, TINY, Tally

HEADS, WIDTH, LEAST, MOST = (2, 32, 8, 16) if TINY else (8, 256, 192, 384)


class RelativeBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(HEADS))
        self.ready = {}

    def distances(self, length):
        at = torch.arange(length, device=DEVICE)
        return (at[:, None] - at).abs().float().neg().div(length).expand(HEADS, -1, -1).contiguous()

    def forward(self, length, offset):
        key = length if FIXED else (length, offset)
        if key not in self.ready:
            self.ready[key] = self.distances(length)
        return self.ready[key] * self.slope[:, None, None]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(500, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 500)
        self.bias = RelativeBias()

    def forward(self, ids, offset):
        n, t = ids.shape
        q, k, v = (z.view(n, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.embed(ids)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 8 + self.bias(t, offset)).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(n, t, -1))


class Texts(torch.utils.data.Dataset):
    """Each text has one of 24 lengths and starts at a different offset of its document each time."""

    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        length = LEAST + (MOST - LEAST) * (i % 24) // 24
        return torch.randint(500, (4, length)), int(torch.randint(1 << 30, ()))


def main():
    model = Model().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tally, step = Tally(), 0
    for _ in range(EPOCHS):
        for ids, offset in torch.utils.data.DataLoader(Texts(), batch_size=None, shuffle=True):
            ids = ids.to(DEVICE)
            loss = nn.functional.cross_entropy(model(ids, offset).flatten(0, 1), ids.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            tally.step(step)
    tally.end()


if __name__ == "__main__":
    main()
