"""A small GAN on coloured blobs. Every twelve iterations the generator draws pictures from the same noise; the pictures
are kept to be viewed later."""
import _held
run = _held.Run("gan_progress", "--keep-last", "keep only the newest drawing", total_steps=180,
                seconds=34)

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(3)


class Blobs(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
        cx, cy, s = (torch.rand(3, generator=g) * 20 + 6).tolist()
        blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * s))
        return torch.stack([blob, blob.flip(0), 1 - blob]) * 2 - 1


def block(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o),
                         nn.ReLU())


G = nn.Sequential(nn.Unflatten(1, (32, 4, 4)), block(32, 64), block(64, 32),
                  nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
D = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1),
                  nn.LeakyReLU(0.2),
                  nn.Flatten(), nn.Linear(32 * 64, 1))
# a table of label statistics, larger than necessary
codebook = nn.Embedding(90_000, 256)
opt_g = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(run.n(144), 512)
progress = []
held_bytes = []


def graph_bytes(t):
    """Returns the bytes of the storages that the autograd graph of t keeps alive, without parameters."""
    skip = {p.untyped_storage().data_ptr() for m in (G, D) for p in [*m.parameters(), *m.buffers()]}
    seen, todo, size = set(), [t.grad_fn], \
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()}
    while todo:
        fn = todo.pop()
        if fn is None or fn in seen:
            continue
        seen.add(fn)
        for name in dir(fn):
            if name.startswith("_saved_"):
                x = getattr(fn, name)
                if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in skip:
                    size[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        todo += [f for f, _ in fn.next_functions]
    return sum(size.values())


def draw_progress():
    pictures = G(fixed_noise)
    if run.twin:
        progress.clear()
        held_bytes.clear()
    progress.append(pictures)
    held_bytes.append(graph_bytes(pictures))


loader = DataLoader(Blobs(), batch_size=16, shuffle=True)
it = 0
for epoch in range(3):
    for real in loader:
        n = real.shape[0]
        z = torch.randn(n, 512)
        fake = G(z)
        loss_d = bce(D(real), torch.ones(n, 1)) + bce(D(fake.detach()), torch.zeros(n, 1))
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = bce(D(fake), torch.ones(n, 1))
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        it += 1
        if it % 12 == 0:
            draw_progress()
        run.pace(sum(held_bytes))
    print(f"epoch {epoch} loss_d {loss_d.item():.3f} loss_g {loss_g.item():.3f}", flush=True)
run.report(sum(held_bytes))
