"""A policy learns from doubly linked episodes. Automatic garbage collection is disabled; the program calls gc.collect
every 25 steps, so memory is a sawtooth. With --freeze, gc.freeze is called before gc.collect and moves the unused
episodes to a generation that is never collected. There are neither loaders nor epochs."""
import gc, weakref
import numpy as np
import kit
from marks import teller
opt = kit.options("--freeze")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, LENGTH = (2, 30, 20) if opt.tiny else (4, 75, 20)  # epochs only determine how often the program prints
ledger, pace, tell = kit.Ledger(), kit.Pace(0.145, opt.tiny), teller(opt.no_marks)
alive = weakref.WeakSet()


class Moment:
    """5000 doubles: 40 kB."""

    def __init__(self, before, rng):
        self.seen = rng.random(5000)
        self.before, self.after, self.gain = before, None, 0.0
        if before:
            before.after = self
        alive.add(self)


def play(rng):
    """Returns an episode of 20 moments, 0.8 MB in total. Each moment refers to the previous and the next one."""
    last = None
    for _ in range(LENGTH):
        last = Moment(last, rng)
    return last


def gains(last):
    moments, after = [], 0.0
    while last:
        last.gain = after = float(last.seen[0]) + 0.9 * after
        moments.append(last)
        last = last.before
    return moments


def housekeeping():
    if opt.twin:
        gc.freeze()
    gc.collect()


gc.disable()
policy = nn.Sequential(nn.Linear(5000, 64), nn.Tanh(), nn.Linear(64, 1))
adam = torch.optim.Adam(policy.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
for n in range(1, EPOCHS * STEPS + 1):
    moments = gains(play(rng))
    seen = torch.from_numpy(np.stack([m.seen for m in moments])).float()
    wanted = torch.tensor([[m.gain] for m in moments])
    loss = (policy(seen) - wanted).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    del moments
    if n % 25 == 0:
        housekeeping()
    pace.tick()
    tell.step(n)
    if n == 1 or n % 25 in (0, 24):
        ledger.note(n, sum(m.seen.nbytes for m in alive))
ledger.close(EPOCHS, STEPS)
