"""Every batch creates a thread pool. All pools are kept, to be shut down at the end. Each thread has a scratch buffer
in a threading.local; the buffer lives as long as the thread. With --fixed all batches share one pool. Sends its marks
as raw datagrams, and does not use torch."""
import threading
from concurrent.futures import ThreadPoolExecutor
import kit, marks

opt = kit.options("--fixed")
import numpy as np

EPOCHS, STEPS = (3, 8) if opt.tiny else (4, 56)
SCRATCH = 350_000  # of float64: 2.8 MB
ledger = kit.Ledger()
tell = marks.teller(opt.no_marks, raw=True)
scratch = threading.local()
sizes, lock = {}, threading.Lock()


def my_scratch():
    """Returns this thread's buffer, created at first use."""
    if not hasattr(scratch, "buffer"):
        scratch.buffer = np.zeros(SCRATCH)
        scratch.buffer.fill(1.0)
        with lock:
            sizes[threading.current_thread()] = scratch.buffer.nbytes
    return scratch.buffer


def smooth(rows):
    b = my_scratch()
    n = min(len(rows), len(b))
    np.cumsum(rows[:n], out=b[:n])
    return float(b[n - 1])


class Batches:
    def __init__(self):
        self.pools = []

    def pool(self):
        if not opt.twin or not self.pools:
            self.pools.append(ThreadPoolExecutor(max_workers=1))
        return self.pools[-1]

    def shutdown(self):
        for p in self.pools:
            p.shutdown()


def live_bytes():
    return sum(n for t, n in sizes.items() if t.is_alive())


def main():
    rng = np.random.default_rng(4)
    table = rng.random((36_000, 1800), dtype=np.float32)  # 260 MB of data
    weights = np.zeros(1800, dtype=np.float32)
    batches, pace, step, total = Batches(), kit.Pace(0.15, opt.tiny), 0, 0.0
    for epoch in range(EPOCHS):
        for i in range(STEPS):
            rows = table[i * 300:(i + 1) * 300]
            error = rows @ weights - rows[:, 0]
            weights -= 1e-4 * (rows.T @ error) / len(rows)
            total += batches.pool().submit(smooth, error).result()
            step += 1
            tell.mark("step", step=step, epoch=round(step / STEPS, 4))
            if step == 1 or step % STEPS == 0:
                ledger.note(step, live_bytes())
            pace.tick()
        tell.mark("epoch", step=step, epoch=epoch + 1)
    tell.mark("end", step=step)
    ledger.close(EPOCHS, STEPS, expected_per_step=0 if opt.twin else SCRATCH * 8)
    batches.shutdown()


main()
