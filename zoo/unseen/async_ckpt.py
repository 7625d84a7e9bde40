"""Trains an MLP. A thread writes the checkpoints, so that training does not wait for the disk."""
import argparse
import json
import os
import queue
import shutil
import tempfile
import threading
import time

import torch
from torch import nn

try:
    import ebb
except ImportError:  # not under `ebb run`
    class ebb:
        step = mark = staticmethod(lambda *a, **k: None)
        phase = staticmethod(lambda name: __import__("contextlib").nullcontext())


class Snapshot:
    """A copy of weights and optimizer state that is written to disk."""

    def __init__(self, step, model, optimizer):
        self.step = step
        self.model = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.momentum = [s["momentum_buffer"].clone() for s in optimizer.state.values() if "momentum_buffer" in s]

    def nbytes(self):
        return sum(t.nbytes for t in self.model.values()) + sum(t.nbytes for t in self.momentum)


class Writer(threading.Thread):
    def __init__(self, folder, forget):
        super().__init__(daemon=True)
        self.folder, self.forget = folder, forget
        self.todo, self.finished = queue.Queue(), []
        self.start()

    def run(self):
        while (snapshot := self.todo.get()) is not None:
            path = os.path.join(self.folder, "checkpoint.tmp")
            torch.save({"model": snapshot.model, "momentum": snapshot.momentum}, path)
            os.replace(path, os.path.join(self.folder, "checkpoint.pt"))
            self.finished.append(snapshot.step if self.forget else snapshot)
            snapshot = None
            self.todo.task_done()


def batches(x, y, epoch):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
    at = 0
    while at < len(order):
        size = 24 + (at * 7) % 17
        pick = order[at:at + size]
        yield x[pick], y[pick]
        at += size


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fixed", action="store_true", help="remember the number of a snapshot only")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    n, epochs, pause = (320, 2, 0) if a.tiny else (1600, 4, 0.21)
    x, y = torch.randn(n, 256), torch.randn(n, 1)
    model = nn.Sequential(nn.Linear(256, 1100), nn.ReLU(), nn.Linear(1100, 1100), nn.ReLU(), nn.Linear(1100, 1))
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    writer = Writer(tempfile.mkdtemp(), a.fixed)
    per_epoch = sum(1 for _ in batches(x, y, 0))
    truth, step, began = [], 0, time.monotonic()
    for epoch in range(epochs):
        for bx, by in batches(x, y, epoch):
            opt.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(bx), by)
            loss.backward()
            opt.step()
            step += 1
            ebb.step(step, epoch=step / per_epoch, steps_per_epoch=per_epoch, max_steps=per_epoch * epochs)
            if step % 12 == 0:
                writer.todo.put(Snapshot(step, model, opt))
                ebb.mark("save", step=step)
            if step % 12 == 10:
                live = sum(s.nbytes() for s in writer.finished if isinstance(s, Snapshot))
                truth.append([step, live, int(open("/proc/self/statm").read().split()[1]) * 4096])
            time.sleep(max(0, began + step * pause - time.monotonic()))
        with ebb.phase("eval"), torch.no_grad():
            print(f"epoch {epoch}: {nn.functional.mse_loss(model(x), y).item():.4f}", flush=True)
        ebb.mark("epoch", step=step)
    writer.todo.put(None)
    writer.join()
    shutil.rmtree(writer.folder)
    print("TRUTH", json.dumps({"checkpoints": len(writer.finished), "step_live_rss": truth}))


if __name__ == "__main__":
    main()
