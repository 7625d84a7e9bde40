"""Two to seven figures of attention heads are drawn at each evaluation and never closed; --close closes the figures."""
import gc
import io

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH, EVERY = (8, 4, 4) if TINY else (168, 42, 14)
HEADS = [3, 6, 2, 5, 7, 3, 4, 2, 6, 5, 3, 7]
WIDE, HIGH, DPI = 8, 5, 110
FIGURE = int(WIDE * DPI) * int(HIGH * DPI) * 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(4000, 64)
        self.attention = nn.MultiheadAttention(64, 8, batch_first=True)
        self.head = nn.Linear(64, 12)

    def forward(self, ids):
        x = self.words(ids)
        y, weights = self.attention(x, x, x, average_attn_weights=False)
        return self.head(x + y), weights


def draw_heads(model, count, close):
    with torch.no_grad():
        _, weights = model(torch.randint(0, 4000, (1, 48)))
    for head in range(count):
        fig, axis = plt.subplots(figsize=(WIDE, HIGH), dpi=DPI)
        axis.imshow(weights[0, head % 8].numpy())
        axis.set_title(f"head {head}")
        fig.savefig(io.BytesIO(), format="png")
        if close:
            plt.close(fig)
    if close:
        gc.collect()
    return 0 if close else count * FIGURE


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    plt.rcParams["figure.max_open_warning"] = 0
    ebb, tally, model, live = marks(), Tally(0.2), Tagger(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for n in range(1, STEPS + 1):
        ids = torch.randint(0, 4000, (8, 48))
        logits, _ = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), (ids % 12).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tally.step(n, live)
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
        if n % EVERY == 0:
            live += draw_heads(model, HEADS[(n // EVERY - 1) % len(HEADS)], flag("--close"))
            ebb.mark("eval", step=n)
    tally.end()


if __name__ == "__main__":
    main()
