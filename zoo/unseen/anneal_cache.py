"""A free function with functools.cache stores kernels by length and temperature. The temperature is rounded to one of a
few values, so there are 40 kernels. With --exact the key contains the exact annealed temperature, so no key ever
recurs."""
import functools, random
import numpy as np
import kit
from marks import teller
opt = kit.options("--exact")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS = (2, 6) if opt.tiny else (4, 55)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.15, opt.tiny), teller(opt.no_marks)
made = []


@functools.cache
def smoothing_kernel(length, temperature):
    x = np.linspace(-3, 3, 388, dtype=np.float64)
    k = np.exp(-np.subtract.outer(x, x) ** 2 * temperature * length)  # 1.2 MB
    made.append(k.nbytes)
    return k


net = nn.Sequential(nn.Linear(388, 256), nn.GELU(), nn.Linear(256, 1))
adamw = torch.optim.AdamW(net.parameters(), lr=1e-3)
signals = np.random.default_rng(1).random((STEPS, 16, 388))
library = np.random.default_rng(2).random(9_000_000)  # 72 MB
kinds = [(8 + i % 8, round(0.5 + 0.1 * (i // 8 % 5), 1)) for i in range(STEPS)]
order, n = list(range(STEPS)), 0
rng = random.Random(4)
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    rng.shuffle(order)
    for i in order:
        length, temperature = kinds[i]
        if opt.twin:
            temperature *= 0.999 ** n
        x = torch.from_numpy(signals[i] @ smoothing_kernel(length, temperature) / 388).float()
        loss = (net(x) - x.mean(1, keepdim=True)).pow(2).mean()
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        n += 1
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4), steps_per_epoch=STEPS)
        if n == 1 or n % STEPS == 0:
            assert smoothing_kernel.cache_info().currsize == len(made)
            ledger.note(n, sum(made))
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
