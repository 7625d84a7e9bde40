"""Embeddings of prompts are cached without a limit. The prompts come from a fixed list, so all of them are cached after
one epoch. --noise adds a random suffix to each prompt, so no prompt recurs. (Kimi-Audio #117)"""
import functools

import torch
from torch import nn

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (4, 50, 4)
WIDTH = 32_000
rng = torch.Generator().manual_seed(11)


@functools.lru_cache(maxsize=None)
def embed(prompt):
    return torch.tensor([float(ord(c)) for c in prompt]).repeat(WIDTH // len(prompt) + 1)[:WIDTH] / 100


def main():
    torch.set_num_threads(1)
    prompts = [f"describe picture {i} in one line" for i in range(STEPS * BATCH)]
    net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    ebb, tally, n = marks(), Tally(0.2), 0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(prompts), generator=rng).tolist()
        for step in range(STEPS):
            chosen = [prompts[i] for i in order[step * BATCH:(step + 1) * BATCH]]
            if flag("--noise"):
                chosen = [f"{p} #{torch.randint(0, 1 << 40, (), generator=rng)}" for p in chosen]
            loss = net(torch.stack([embed(p) for p in chosen])).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, embed.cache_info().currsize * WIDTH * 4)
    tally.end()


if __name__ == "__main__":
    main()
