"""A language-model loop in the style of nanoGPT. A thread copies tokens from np.memmap into blocks allocated with
malloc. Damaged blocks are skipped. The loop reports its steps if the ebb package is installed."""
import _held
run = _held.Run("memmap_thread", "--free-skipped", "free skipped blocks, too", total_steps=150,
                seconds=34)

import ctypes
import os
import queue
import tempfile
import threading

import numpy as np
import torch

try:
    import ebb
except ImportError:
    ebb = None

torch.set_num_threads(1)
torch.manual_seed(0)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
BLOCK = run.n(640_000, 4096)  # number of tokens, of two bytes each
EPOCHS, STEPS = 3, 50
DAMAGED = 65535
stats = {"allocated": 0, "freed": 0}


def write_tokens(path):
    rng = np.random.default_rng(0)
    bad = rng.permutation([True] * STEPS + [False] * STEPS)
    with open(path, "wb") as f:
        for b in bad:
            block = np.tile(rng.integers(0, 5000, 4096, dtype=np.uint16),
                            BLOCK // 4096 + 1)[:BLOCK].copy()
            if b:
                block[0] = DAMAGED
            f.write(block.tobytes())


class Reader(threading.Thread):
    def __init__(self, path, out):
        super().__init__(daemon=True)
        self.path, self.out = path, out

    def copy_block(self, tokens, k):
        address = libc.malloc(BLOCK * 2)
        stats["allocated"] += BLOCK * 2
        view = tokens[k * BLOCK:(k + 1) * BLOCK]
        ctypes.memmove(address, view.ctypes.data, BLOCK * 2)
        return address, view[0] != DAMAGED

    def run(self):
        for _ in range(EPOCHS):
            tokens = np.memmap(self.path, dtype=np.uint16, mode="r")
            for k in range(len(tokens) // BLOCK):
                address, good = self.copy_block(tokens, k)
                if not good:
                    if run.twin:
                        release(address)
                    continue
                self.out.put(address)
        self.out.put(None)


def release(address):
    libc.free(address)
    stats["freed"] += BLOCK * 2


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.bin")
        write_tokens(path)
        embed = torch.nn.Embedding(5000, 4096)
        model = torch.nn.Linear(4096, 64)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        blocks = queue.Queue(maxsize=3)
        Reader(path, blocks).start()
        step = 0
        while (address := blocks.get()) is not None:
            tokens = np.ctypeslib.as_array((ctypes.c_uint16 * BLOCK).from_address(address))
            at = np.random.randint(0, BLOCK - 33, 8)
            x = torch.from_numpy(np.stack([tokens[a:a + 32].astype(np.int64) for a in at]))
            y = torch.from_numpy(np.array([int(tokens[a + 32]) % 64 for a in at]))
            release(address)
            loss = torch.nn.functional.cross_entropy(model(embed(x).detach().mean(1)), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if ebb and run.marks:
                ebb.step(step, steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
            if step % 25 == 0:
                print("iter", step, "loss", round(loss.item(), 3), flush=True)
            run.pace(stats["allocated"] - stats["freed"])
        run.report(stats["allocated"] - stats["freed"])


main()
