"""A fake quantizer, written as autograd.Function, collects its rounding errors in a class attribute for a histogram
that is never drawn. With --ring only the errors of the last six batches are kept. Batches vary widely in length."""
import collections
import kit
opt = kit.options("--ring")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, BATCH, WIDTH = (2, 5, 12, 256) if opt.tiny else (5, 30, 12, 256)
ledger, pace = kit.Ledger(), kit.Pace(0.22, opt.tiny)


class FakeQuant(torch.autograd.Function):
    errors = collections.deque(maxlen=6) if opt.twin else []

    @staticmethod
    def forward(ctx, x):
        q = torch.round(x * 16) / 16
        FakeQuant.errors.append(x - q)
        return q

    @staticmethod
    def backward(ctx, g):
        return g


class Clips(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(5)
        self.length = torch.randint(20, 121, (STEPS,), generator=g).tolist()
        self.clips = [torch.rand(BATCH, t, WIDTH, generator=g) for t in self.length]
        # stands for a corpus of 144 MB that is used for statistics
        self.reference = torch.rand(36_000_000, generator=g)

    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return self.clips[i]


clips = Clips()
net = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, WIDTH))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
n = 0
for epoch in range(EPOCHS):
    for x in torch.utils.data.DataLoader(clips, batch_size=None, shuffle=True):
        y = FakeQuant.apply(net(x))
        loss = (y - x).pow(2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        n += 1
        pace.tick()
        if n == 1 or n % STEPS == 0:
            ledger.note(n, sum(e.nbytes for e in FakeQuant.errors))
ledger.close(EPOCHS, STEPS)
