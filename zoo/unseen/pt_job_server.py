"""A service trains in its own process: jobs arrive in a queue, and a thread trains them one after another. The
table of jobs keeps each job with its model and optimizer. With --fixed it keeps only the metrics of each
job."""
import queue, threading
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

JOBS, STEPS, BATCH, WIDTH = (3, 6, 16, 1100) if opt.tiny else (6, 55, 16, 1100)
ledger = kit.Ledger()


class Training:
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(STEPS * BATCH, 60, generator=g)
        self.loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=BATCH,
                                 shuffle=True)
        self.net = nn.Sequential(nn.Linear(60, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH),
                                 nn.ReLU(),
                                 nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.losses = []

    def run(self, each_step):
        for x, y in self.loader:
            loss = (self.net(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            each_step()

    def tensor_bytes(self):
        n = 0
        for p in self.net.parameters():
            n += p.numel() * 4 * (2 if p.grad is not None else 1)
        for s in self.optimizer.state.values():
            n += sum(t.numel() * t.element_size() for t in s.values()
                     if isinstance(t, torch.Tensor) and t.dim())
        return n


class Service:
    def __init__(self):
        self.inbox, self.jobs, self.step = queue.Queue(), {}, 0
        self.pace = kit.Pace(0.11, opt.tiny)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def each_step(self):
        self.step += 1
        self.pace.tick()

    def serve(self):
        while (job := self.inbox.get()) is not None:
            self.handle(job)
            ledger.note(self.step, self.live_bytes())

    def handle(self, job):
        training = Training(job)
        training.run(self.each_step)
        if opt.twin:
            self.jobs[job] = {"state": "done", "loss": training.losses[-1]}
        else:
            self.jobs[job] = {"state": "done", "loss": training.losses[-1], "training": training}

    def live_bytes(self):
        return sum(j["training"].tensor_bytes() for j in self.jobs.values() if "training" in j)


def main():
    service = Service()
    for job in range(JOBS):
        service.inbox.put(job)
    service.inbox.put(None)
    service.thread.join()
    ledger.close(JOBS, STEPS)


main()
