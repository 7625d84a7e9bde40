"""A Transformer on sentences of many lengths; the relative-position bias of each length is computed once."""
import argparse, json, math, os, random, shutil, tempfile, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    """Lengths of the sampler's buckets; all sentences of a bucket have the same length."""

    def __init__(self, buckets):
        rnd = random.Random(8)
        self.shapes = [(rnd.randint(2, 5), 8 * rnd.randint(8, 30), rnd.randrange(100_000)) for _ in range(buckets)]

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, i):
        rows, length, offset = self.shapes[i]
        return torch.randint(500, (rows, length)), offset + random.randrange(10_000)


class RelativeBias(nn.Module):
    def __init__(self, heads, by_offset):
        super().__init__()
        self.heads, self.by_offset = heads, by_offset
        self.ready = {}

    def forward(self, length, offset):
        key = (length, offset) if self.by_offset else length
        if key not in self.ready:
            self.ready[key] = self.compute(length)
        return self.ready[key]

    def compute(self, length):
        distance = (torch.arange(length)[:, None] - torch.arange(length)).abs().float()
        slopes = torch.tensor([2.0 ** -(h + 1) for h in range(self.heads)])
        return -slopes[:, None, None] * distance

    def nbytes(self):
        return sum(t.nbytes for t in self.ready.values())


class Model(nn.Module):
    def __init__(self, by_offset, dim=32, heads=8):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(500, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, 500)
        self.bias, self.heads = RelativeBias(heads, by_offset), heads

    def forward(self, ids, offset):
        n, t = ids.shape
        q, k, v = (z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.embed(ids)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.bias(t, offset)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1))


parser = argparse.ArgumentParser()
parser.add_argument("--leak", action="store_true", help="the key has the offset of the document in it")
parser.add_argument("--tiny", action="store_true")
cli = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
buckets, epochs, pause = (12, 2, 0) if cli.tiny else (80, 4, 0.25)
loader = DataLoader(Sentences(buckets), batch_size=None, shuffle=True)
model = Model(cli.leak)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
truth, step, began = [], 0, time.monotonic()
where = os.path.join(tempfile.mkdtemp(), "model.pt")
for epoch in range(epochs):
    for i, (ids, offset) in enumerate(loader):
        logits = model(ids, offset)
        (nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) / 2).backward()
        if i % 2 == 1:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            step += 1
            if step % 16 == 0 or step == 1:
                truth.append([step, model.bias.nbytes(), int(open("/proc/self/statm").read().split()[1]) * 4096])
            time.sleep(max(0, began + step * pause - time.monotonic()))
    torch.save(model.state_dict(), where)
    print("epoch", epoch, "cached", len(model.bias.ready), flush=True)
shutil.rmtree(os.path.dirname(where))
print("TRUTH", json.dumps({"step_live_rss": truth}))
