"""Reads a mapped file once per epoch. The pages of the file stay resident (RssFile) until the kernel reclaims them.
With --leak each batch is copied out of the mapping, and the copies are kept for replay.
"""
import os, tempfile
import kit, marks

opt = kit.options("--leak")
torch = kit.torch_cpu()
import numpy as np

EPOCHS, STEPS = (3, 8) if opt.tiny else (5, 40)
ROWS, WIDTH, KEEP = 1500, 1024, 800  # numbers of float32 values: 6.1 MB are read per step, and 3.3 MB kept with --leak
ledger = kit.Ledger()
tell = marks.teller(opt.no_marks)


def write_shards(path):
    rng = np.random.default_rng(8)
    with open(path, "wb") as f:
        for _ in range(STEPS):
            f.write(rng.random((ROWS, WIDTH), dtype=np.float32).tobytes())


class Replay:
    def __init__(self):
        self.batches = []

    def add(self, rows):
        self.batches.append(np.array(rows))

    def nbytes(self):
        return sum(b.nbytes for b in self.batches)


def evaluate(net, shards):
    with torch.no_grad():
        return float(net(torch.from_numpy(np.array(shards[:200]))).mean())


def main(path):
    write_shards(path)
    shards = np.memmap(path, dtype=np.float32, mode="r", shape=(STEPS * ROWS, WIDTH))
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters())
    replay, pace, step = Replay(), kit.Pace(0.165, opt.tiny), 0
    tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS, examples=STEPS * ROWS,
              effective_batch=ROWS)
    for epoch in range(EPOCHS):
        for i in range(STEPS):
            rows = shards[i * ROWS:(i + 1) * ROWS]
            scale = float(rows.mean())
            loss = (net(torch.from_numpy(np.array(rows[::10]))) - scale).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if opt.twin:
                replay.add(rows[:KEEP])
            step += 1
            tell.step(step, epoch=round(step / STEPS, 4), steps_per_epoch=STEPS)
            if step in (1, STEPS // 2) or step % STEPS == 0:
                ledger.note(step, replay.nbytes())
            pace.tick()
        with tell.phase("eval"):
            evaluate(net, shards)
        tell.mark("eval", step=step)
        tell.mark("epoch", step=step, epoch=epoch + 1)
    tell.mark("end", step=step)
    r = kit.rss()
    ledger.close(EPOCHS, STEPS, expected_per_step=KEEP * WIDTH * 4 if opt.twin else 0,
                 rss_file=r["RssFile"],
                 rss_anon=r["RssAnon"])


with tempfile.TemporaryDirectory() as tmp:
    main(os.path.join(tmp, "shards.f32"))
