"""A cache of spectrograms has a limit in bytes. It is full late in the second epoch; from then on, old entries are
evicted. With --index-only evicted entries are removed from the index and from the sum of bytes, but not from the
cache."""
import collections
import numpy as np
import kit
from marks import teller
opt = kit.options("--index-only")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, LIMIT = (2, 8, 8_000_000) if opt.tiny else (4, 64, 115_000_000)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.165, opt.tiny), teller(opt.no_marks, raw=True)


class Cache:
    def __init__(self):
        self.arrays, self.index, self.used = {}, collections.OrderedDict(), 0

    def get(self, clip, offset, frames):
        key = clip, offset
        if key in self.index:
            self.index.move_to_end(key)
            return self.arrays[key]
        array = self.arrays[key] = spectrogram(clip, offset, frames)
        self.index[key] = array.nbytes
        self.used += array.nbytes
        while self.used > LIMIT:
            self.evict()
        return array

    def evict(self):
        key, size = self.index.popitem(last=False)
        self.used -= size
        if not opt.twin:
            del self.arrays[key]

    def live(self):
        return sum(a.nbytes for a in self.arrays.values())


def spectrogram(clip, offset, frames):
    """A spectrogram has 400 to 1000 frames of 129 floats each: 0.2 to 0.5 MB."""
    t = np.arange(offset, offset + frames * 40)
    wave = np.sin(t * (0.01 + clip * 1e-4)).reshape(frames, 40)
    return np.abs(np.fft.rfft(wave, 256)).astype(np.float32)


net = nn.Sequential(nn.Linear(129, 64), nn.ReLU(), nn.Linear(64, 12))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
rng, cache, n = np.random.default_rng(11), Cache(), 0
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch in range(EPOCHS):
    for i in range(STEPS):
        loss = 0
        for k in range(4):  # a batch consists of three new crops and one of 40 recurring crops
            clip = int(rng.integers(40)) if k == 0 else i * 4 + k
            offset = 0 if k == 0 else int(rng.integers(10**9))
            array = cache.get(clip, offset, 400 + clip * 37 % 600)
            loss = loss + net(torch.from_numpy(array).mean(0)).logsumexp(0)
        adam.zero_grad()
        loss.backward()
        adam.step()
        n += 1
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4))
        if n == 1 or n % 8 == 0:
            ledger.note(n, cache.live())
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
