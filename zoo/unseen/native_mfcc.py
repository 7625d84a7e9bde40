"""A small C library cuts sound clips into overlapping windows, on which a classifier is trained."""
import argparse, ctypes, json, os, queue, shutil, subprocess, tempfile, threading, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOURCE = r"""
#include <stdlib.h>
float *windows_new(const float *wave, int n, int size, int hop)
{
    int rows = (n - size) / hop + 1;
    float *out = malloc(sizeof(float) * rows * size);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < size; k++)
            out[r * size + k] = wave[r * hop + k] * (k < size / 2 ? k : size - k);
    return out;
}
void windows_free(float *w) { free(w); }
"""
SIZE, HOP = 256, 64
native_live = 0


def build():
    """Loads the C library, or uses libc's malloc directly if there is no compiler."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        print("no C compiler: windows come from libc's malloc")
        return None
    folder = tempfile.mkdtemp()
    with open(f"{folder}/w.c", "w") as f:
        f.write(SOURCE)
    subprocess.run([cc, "-O1", "-g", "-fPIC", "-shared", "-o", f"{folder}/libw.so", f"{folder}/w.c"], check=True)
    lib = ctypes.CDLL(f"{folder}/libw.so")
    lib.windows_new.restype = ctypes.c_void_p
    lib.windows_new.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    lib.windows_free.argtypes = [ctypes.c_void_p]
    return lib


LIB = build()
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]


def windows(wave, release):
    global native_live
    rows = (len(wave) - SIZE) // HOP + 1
    if LIB is not None:
        at = LIB.windows_new(wave.ctypes.data, len(wave), SIZE, HOP)
    else:
        at = LIBC.malloc(rows * SIZE * 4)
        cut = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(wave, SIZE)[::HOP])
        ctypes.memmove(at, cut.ctypes.data, cut.nbytes)
    native_live += rows * SIZE * 4
    view = np.ctypeslib.as_array((ctypes.c_float * (rows * SIZE)).from_address(at)).reshape(rows, SIZE)
    features = np.log1p(np.abs(view).mean(1))[:100].copy()
    if release:
        (LIB.windows_free if LIB is not None else LIBC.free)(at)
        native_live -= rows * SIZE * 4
    return features


class Clips(Dataset):
    def __init__(self, n, release):
        self.n, self.release = n, release

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        wave = rng.standard_normal(int(rng.integers(6700, 8000))).astype(np.float32)
        return windows(wave, self.release), i % 4


def ahead(loader, depth=4):
    """Fetches batches in a thread, at most DEPTH ahead."""
    q = queue.Queue(maxsize=depth)

    def pull():
        for item in loader:
            q.put(item)
        q.put(None)
    threading.Thread(target=pull, daemon=True).start()
    while (item := q.get()) is not None:
        yield item


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fixed", action="store_true", help="free the windows")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n, epochs, pause = (80, 2, 0) if a.tiny else (500, 4, 0.2)
    loader = DataLoader(Clips(n, a.fixed), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.RMSprop(model.parameters())
    truth, step, began = [], 0, time.monotonic()
    where = os.path.join(tempfile.mkdtemp(), "clips.pt")
    for epoch in range(epochs):
        for x, y in ahead(loader):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.float()), y).backward()
            opt.step()
            step += 1
            if step % 20 == 1:
                truth.append([step, native_live, int(open("/proc/self/statm").read().split()[1]) * 4096])
            time.sleep(max(0, began + step * pause - time.monotonic()))
        torch.save(model.state_dict(), where)
        print("epoch", epoch, flush=True)
    shutil.rmtree(os.path.dirname(where))
    print("TRUTH", json.dumps({"compiled": LIB is not None, "step_live_rss": truth}))


if __name__ == "__main__":
    main()
