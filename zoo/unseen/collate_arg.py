"""A collate function with a mutable default argument runs in a persistent worker. The default argument is a list of
padded arrays that is never cleared; with --clear it is cleared at the start of each call."""
import numpy as np
import kit
opt = kit.options("--clear")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, BATCH = (2, 5, 11) if opt.tiny else (4, 40, 11)
ledger, pace = kit.Ledger(), kit.Pace(0.2, opt.tiny)


def collate(batch, padded=[]):
    if opt.twin:
        padded.clear()
    for spectrum in batch:
        row = np.zeros(12_500)  # 100 kB
        row[: len(spectrum)] = spectrum
        padded.append(row)
    return torch.from_numpy(np.stack(padded[-len(batch):])).float(), sum(r.nbytes for r in padded)


class Spectra(torch.utils.data.Dataset):
    def __init__(self):
        rng = np.random.default_rng(3)
        self.all = rng.random((STEPS * BATCH, 12_000), dtype=np.float32)  # 21 MB
        self.len = rng.integers(9_000, 12_000, STEPS * BATCH)

    def __len__(self):
        return len(self.all)

    def __getitem__(self, i):
        return self.all[i, : self.len[i]]


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(12_500, 64), nn.ReLU(), nn.Linear(64, 1))
    opt_ = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Spectra(), batch_size=BATCH, shuffle=True, num_workers=1,
                                         collate_fn=collate,
                                         persistent_workers=True)
    n = 0
    for epoch in range(EPOCHS):
        for x, held in loader:
            loss = (net(x) - x.mean(1, keepdim=True)).abs().mean()
            opt_.zero_grad()
            loss.backward()
            opt_.step()
            n += 1
            pace.tick()
            if n == 1 or n % STEPS == 0:
                ledger.note(n, held)  # bytes kept by the worker, as counted by the worker itself
    ledger.close(EPOCHS, STEPS)
