"""Data-loader workers read a list of Python objects. Each access writes reference counts, so that pages shared with
the parent become private to each worker, until all pages are private. RSS stays flat, but unique memory grows during
the first epoch. With --leak the dataset also caches examples in each worker, under keys that never recur."""
import random  # noqa
import kit

opt = kit.options("--leak")
torch = kit.torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

EPOCHS, STEPS, BATCH = (3, 6, 20) if opt.tiny else (4, 60, 100)
WORDS, WORKERS, KEPT = 380, 2, 3000
ledger = kit.Ledger()


class Documents(Dataset):
    def __init__(self, n):
        self.texts = [[f"w{i:05d}-{k:04d}-{(i * k) % 9973}" for k in range(WORDS)]
                      for i in range(n)]
        self.views = {}
        self.made = 0

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        n = 0
        for w in self.texts[i]:
            n += len(w)
        view = self.crop(i, n)
        info = get_worker_info()
        kept = sum_bytes(self.views) if opt.twin and self.made % 50 == 0 else -1
        return view[:32].clone(), n % 4, info.id if info else 0, kept

    def crop(self, i, n):
        view = torch.full((KEPT,), float(n % 97))
        self.made += 1
        if opt.twin:
            self.views[i, self.made] = view
        return view


def sum_bytes(views):
    return sum(v.numel() * v.element_size() for v in views.values())


def main():
    data = Documents(STEPS * BATCH)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS,
                        persistent_workers=True,
                        multiprocessing_context="fork")
    net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    pace, step, held = kit.Pace(0.145, opt.tiny), 0, [0] * WORKERS
    for epoch in range(EPOCHS):
        for x, y, worker, kept in loader:
            held[int(worker[0])] = max(held[int(worker[0])], int(kept.max()))
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == WORKERS or step % STEPS == 0:
                ledger.note(step, sum(held))
            pace.tick()
    ledger.close(EPOCHS, STEPS, expected_per_step=BATCH * KEPT * 4 if opt.twin else 0)


main()
