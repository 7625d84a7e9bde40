"""A hook records the attention maps of each forward pass, 12.6 MB/step; --last keeps only the last map of each
layer."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS = (3, 8, 2) if TINY else (12, 8, 4)
HEADS, LENGTH, WIDTH = 6, 256, 96


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.map = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Identity()

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = self.map((q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class MapRecorder:
    def __init__(self, last):
        self.last, self.maps, self.n = last, {}, 0

    def record(self, module, inputs, output):
        self.n += 1
        self.maps["block" if self.last else f"block/{self.n}"] = output.detach()

    def size(self):
        return sum(m.nbytes for m in self.maps.values())


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    words, attention, head = nn.Embedding(1000, WIDTH), Attention(), nn.Linear(WIDTH, 1000)
    recorder = MapRecorder(flag("--last"))
    attention.map.register_forward_hook(recorder.record)
    model = nn.Sequential(words, attention, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randint(0, 1000, (STEPS * BATCH, LENGTH))), batch_size=BATCH, shuffle=True)
    tally, n = Tally(0.68), 0
    for _ in range(EPOCHS):
        for (ids,) in loader:
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.roll(-1, 1).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            tally.step(n, recorder.size())
    tally.end()


if __name__ == "__main__":
    main()
