"""Fine-tuning with gradual unfreezing: the first epoch trains only the head, and each of the next two epochs also
trains one more block."""
import _held
run = _held.Run("unfreeze_opt", "--rebuild",
                "a new optimizer and schedule each epoch; a list keeps all schedules",
                total_steps=180, seconds=36)

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH = run.n(1200, 32)


class Backbone(nn.Module):
    def __init__(self, blocks=4, classes=10):
        super().__init__()
        self.stem = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(blocks))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x)


def adam_bytes(opt):
    return sum(t.nbytes for s in opt.state.values() for t in s.values() if torch.is_tensor(t))


class FineTuner:
    def __init__(self, model):
        self.model = model
        self.schedules = []
        for p in model.parameters():
            p.requires_grad_(False)
        for p in model.head.parameters():
            p.requires_grad_(True)
        self.new_optimizer()

    def new_optimizer(self):
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad],
                                           lr=1e-4)
        self.schedules.append(torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=30))

    def begin_epoch(self, epoch):
        fresh = []
        if epoch in (1, 2):
            for p in self.model.blocks[-epoch].parameters():
                p.requires_grad_(True)
                fresh.append(p)
        if run.twin:
            if epoch:
                self.new_optimizer()
        elif fresh:
            self.optimizer.add_param_group({"params": fresh})

    def step_optimizer(self):
        self.optimizer.step()

    def stale_bytes(self):
        return sum(adam_bytes(s.optimizer) for s in self.schedules
                   if s.optimizer is not self.optimizer)


def main():
    xs = torch.randn(30 * 16, 64)
    loader = DataLoader(TensorDataset(xs, xs[:, :10].argmax(1)), batch_size=16, shuffle=True)
    tuner = FineTuner(Backbone())
    for epoch in range(6):
        tuner.begin_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(tuner.model(x), y)
            tuner.model.zero_grad()
            loss.backward()
            tuner.step_optimizer()
            run.pace(tuner.stale_bytes())
        print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    run.report(tuner.stale_bytes(), current_state_bytes=adam_bytes(tuner.optimizer))


if __name__ == "__main__":
    main()
