"""Every 16 steps texts are generated with a key-value cache, which is allocated at once and filled token by token. The
cache is freed when the texts are complete. With --resume the used part of the cache is kept for each text, in order to
continue the text later."""
import time

from kit import Ledger, Pace, options, torch_cpu
from marks import teller

EPOCHS, STEPS, EVERY = 4, 48, 16
LAYERS, BATCH, ROOM, PROMPT, WIDTH = 8, 16, 1280, 192, 64

opts = options("--resume")
torch = torch_cpu()
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, WIDTH)
        self.kv = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.kv:
            k, v = layer(h).chunk(2, -1)
            h = h + torch.tanh(k) * v
        return self.head(h)

    def extend(self, tokens, cache, at):
        """Appends keys and values of some more tokens to the cache."""
        h = self.embed(tokens)
        for i, layer in enumerate(self.kv):
            k, v = layer(h).chunk(2, -1)
            cache[i, 0, :, at:at + tokens.shape[1]] = k
            cache[i, 1, :, at:at + tokens.shape[1]] = v
            h = h + torch.tanh(k) * v
        return self.head(h[:, -1:]).argmax(-1)


class Sampler:
    def __init__(self, resume):
        self.resume = resume
        self.sessions = []

    @torch.no_grad()
    def generate(self, model):
        cache = torch.zeros(LAYERS, 2, BATCH, ROOM, WIDTH)
        chunk = ROOM // 10
        for at in range(0, ROOM, chunk):
            model.extend(torch.randint(0, 1000, (BATCH, chunk)), cache, at)
            if not opts.tiny:
                time.sleep(0.08)
        if self.resume:
            self.keep(cache)

    def keep(self, cache):
        self.sessions.append(cache[:, :, :, :PROMPT].clone())

    def live(self):
        return sum(s.nbytes for s in self.sessions)


def main():
    epochs, steps = (1, 16) if opts.tiny else (EPOCHS, STEPS)
    ebb = teller(opts.no_marks)
    model, sampler = Decoder(), Sampler(opts.twin)
    optimizer = torch.optim.AdamW(model.parameters())
    pace, ledger, step = Pace(0.13, opts.tiny), Ledger(), 0
    for _ in range(epochs):
        for _ in range(steps):
            tokens = torch.randint(0, 1000, (4, 32))
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            pace.tick()
            ebb.step(step, steps_per_epoch=steps, epoch=step / steps)
            if step % EVERY == 0:
                with ebb.phase("eval"):
                    sampler.generate(model)
            if step == 1 or step % 8 == 0:
                ledger.note(step, sampler.live())
    ledger.close(epochs, steps)


main()
