"""Batches of varying size are allocated in blocks below malloc's mmap threshold. A small, long-lived block follows each
batch, so the heap cannot shrink and retains as much memory as the longest batch needs. This is not a leak, because the
batches recur in each epoch. With --leak, some blocks of each batch are never freed."""
import collections
import kit, marks

opt = kit.options("--leak")
torch = kit.torch_cpu()
import numpy as np

EPOCHS, STEPS = (3, 10) if opt.tiny else (5, 48)
BLOCK = 72_000
FEW, MANY, KEEP = 60, 1300, 26
ledger = kit.Ledger()
tell = marks.teller(opt.no_marks)
# shorter batches tend to come first, as with data grouped by length; the order is the same in every epoch
order = np.argsort(np.argsort(np.arange(STEPS)
                              + np.random.default_rng(11).normal(0, STEPS * 0.15, STEPS)))
lengths = [int(FEW + (MANY - FEW) * (k / (STEPS - 1)) ** 1.5) for k in order]  # number of blocks in batch i

recent = collections.deque(maxlen=64)  # small and long-lived, but limited in number
hard_examples = []


def read_batch(n, seed):
    blocks = []
    for k in range(n):
        b = np.empty(BLOCK, dtype=np.uint8)
        b.fill((seed + k) % 255)
        blocks.append(b)
    return blocks


def remember(blocks):
    hard_examples.extend(blocks[:: max(1, len(blocks) // KEEP)][:KEEP])


def live_bytes():
    return sum(b.nbytes for b in hard_examples) + sum(b.nbytes for b in recent)


def main():
    net = torch.nn.Linear(128, 128)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    pace, step = kit.Pace(0.15, opt.tiny), 0
    tell.mark("begin", steps_per_epoch=STEPS, max_steps=STEPS * EPOCHS)
    for epoch in range(EPOCHS):
        for i in range(STEPS):
            blocks = read_batch(lengths[i], step)
            recent.append(np.full(900, step, dtype=np.uint8))
            x = torch.from_numpy(np.stack([b[:128] for b in blocks[:32]]).astype(np.float32))
            loss = net(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if opt.twin:
                remember(blocks)
            del blocks
            step += 1
            tell.step(step, epoch=round(step / STEPS, 4))
            if step == 1 or step % (STEPS // 2) == 0 or step % STEPS == 3:
                ledger.note(step, live_bytes())
            pace.tick()
        tell.mark("epoch", step=step, epoch=epoch + 1)
    tell.mark("end", step=step)
    ledger.close(EPOCHS, STEPS, expected_per_step=KEEP * BLOCK if opt.twin else 0)


main()
