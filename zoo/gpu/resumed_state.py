"""A job is interrupted every half epoch and resumes from its checkpoint. The state loaded onto the device stays in a
history of resumes; --fixed drops it once the optimizer has copied it."""
import io

import torch
from torch import nn

from kit import DEVICE, EPOCHS, FIXED, STEPS, TINY, Items, Tally

BATCH, WIDTH = (4, 64) if TINY else (64, 1536)


class Job:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(DEVICE)
        self.opt = self.optimizer()
        self.history = []

    def optimizer(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-4)

    def checkpoint(self):
        file = io.BytesIO()
        torch.save({"net": self.net.state_dict(), "opt": self.opt.state_dict()}, file)
        return file.getvalue()

    def resume(self, saved, step):
        state = torch.load(io.BytesIO(saved), map_location=DEVICE)
        self.net.load_state_dict(state["net"])
        self.opt = self.optimizer()
        self.opt.load_state_dict(state["opt"])
        self.history.append((step, None if FIXED else state))

    def train(self, x, y):
        self.opt.zero_grad()
        nn.functional.cross_entropy(self.net(x), y).backward()
        self.opt.step()


def main():
    job, tally, step = Job(), Tally(), 0
    loader = torch.utils.data.DataLoader(Items(BATCH, lambda i: (torch.randn(WIDTH), i % 10)), batch_size=BATCH)
    for _ in range(EPOCHS):
        for x, y in loader:
            job.train(x.to(DEVICE), y.to(DEVICE))
            step += 1
            if step % (STEPS // 2) == 0:
                job.resume(job.checkpoint(), step)
            tally.step(step)
    tally.end()


if __name__ == "__main__":
    main()
