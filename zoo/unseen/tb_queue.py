"""A thread reads histograms from a queue and writes them, half as fast as training creates them, so the queue grows.
With --bounded the queue contains at most 24 histograms, and further ones are dropped."""
import queue
import threading
import time

from kit import Ledger, Pace, options, torch_cpu
from marks import teller

EPOCHS, STEPS, DT = 4, 60, 0.14
LAYERS, WIDTH = 4, 256

opts = options("--bounded")
torch = torch_cpu()
from torch import nn


class SummaryWriter:
    """Sends events to a writer thread, as common writers of event files do."""

    def __init__(self, room):
        self.events = queue.Queue(maxsize=room)
        self.dropped = 0
        self.seconds = 0 if opts.tiny else 2 * DT
        threading.Thread(target=self.write, daemon=True).start()

    def add_weights(self, model, step):
        event = [p.detach().numpy().copy() for p in model.parameters() if p.dim() == 2]
        try:
            self.events.put_nowait((step, event))
        except queue.Full:
            self.dropped += 1

    def write(self):
        while True:
            step, event = self.events.get()
            for values in event:
                values.min(), values.max(), values.mean()
            del event, values
            time.sleep(self.seconds)

    def live(self):
        return sum(a.nbytes for _, event in list(self.events.queue) for a in event)


def main():
    epochs, steps = (1, 6) if opts.tiny else (EPOCHS, STEPS)
    ebb = teller(opts.no_marks)
    model = nn.Sequential(*[m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    writer = SummaryWriter(24 if opts.twin else 0)
    pace, ledger, step = Pace(DT, opts.tiny), Ledger(), 0
    ebb.mark("begin", step=0, steps_per_epoch=steps)
    for epoch in range(epochs):
        for _ in range(steps):
            x = torch.randn(32, WIDTH)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            writer.add_weights(model, step)
            pace.tick()
            ebb.step(step, steps_per_epoch=steps)
            if step == 1 or step % 8 == 0:
                ledger.note(step, writer.live())
        ebb.mark("epoch", step=step, epoch=epoch + 1)
    ledger.close(epochs, steps, dropped=writer.dropped)


main()
