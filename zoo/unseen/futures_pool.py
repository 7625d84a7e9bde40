"""A thread pool prepares crops. The futures stay in a list and keep their results alive; --pop removes them. All images
are decoded at the start, which takes five seconds."""
import collections, concurrent.futures, time, zlib  # noqa
import numpy as np
import kit
from marks import teller
opt = kit.options("--pop")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, AHEAD = (2, 5, 3) if opt.tiny else (3, 64, 5)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.17, opt.tiny), teller(opt.no_marks, raw=True)


class Images:
    def __init__(self, n=180, side=560):
        rng = np.random.default_rng(0)
        packed = [zlib.compress(np.repeat(rng.integers(0, 255, side * 60, dtype=np.uint8),
                                          28).tobytes(), 1)
                  for _ in range(4)]
        self.pixels = []
        for i in range(n):
            flat = np.frombuffer(zlib.decompress(packed[i % 4]), np.uint8)
            self.pixels.append(np.array(flat[: side * side * 3]).reshape(side, side, 3))
            if not opt.tiny:
                time.sleep(0.022)

    def crop(self, i, seed):
        y, x = np.random.default_rng(seed).integers(0, 280, 2)
        # 0.9 MB
        return np.ascontiguousarray(self.pixels[i][y:y + 274, x:x + 274], dtype=np.float32) / 255


class Ahead:
    def __init__(self, images):
        self.images, self.pool, self.jobs, self.given = \
            images, concurrent.futures.ThreadPoolExecutor(2), [], 0
        self.seed = 0
        for _ in range(AHEAD):
            self.more()

    def more(self):
        self.seed += 1
        self.jobs.append(self.pool.submit(self.images.crop, self.seed % len(self.images.pixels),
                                          self.seed))

    def next(self):
        self.more()
        if opt.twin:
            return self.jobs.pop(0).result()
        self.given += 1
        return self.jobs[self.given - 1].result()

    def live(self):
        return sum(f.result().nbytes for f in self.jobs if f.done())


net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 5, stride=4),
                    nn.Flatten(), nn.LazyLinear(10))
net(torch.zeros(1, 3, 274, 274))
sgd = torch.optim.SGD(net.parameters(), lr=1e-3)
ahead, n = Ahead(Images()), 0
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    for _ in range(STEPS):
        x = torch.from_numpy(ahead.next()).permute(2, 0, 1)[None]
        loss = net(x).logsumexp(1).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        n += 1
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4))
        if n == 1 or n % STEPS == 0:
            ledger.note(n, ahead.live())
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ahead.pool.shutdown()
ledger.close(EPOCHS, STEPS)
