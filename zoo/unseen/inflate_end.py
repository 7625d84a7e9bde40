"""Compressed curves are unpacked by direct calls of zlib. Long curves are read only up to a limit, and on this path the function
returns without calling inflateEnd. --end calls it on both paths. (matio #305, camlzip #41, indexed_gzip #82)"""
import ctypes
import ctypes.util
import zlib

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, LIMIT = (2, 4, 4, 12_000) if TINY else (5, 41, 16, 24_000)
STATE = 40_000  # bytes of zlib's state and window, including what C's malloc adds
DONE, FINISHED = 0, 1

libz = ctypes.CDLL(ctypes.util.find_library("z") or "libz.so.1")


class Stream(ctypes.Structure):
    _fields_ = [("next_in", ctypes.c_char_p), ("avail_in", ctypes.c_uint), ("total_in", ctypes.c_ulong),
                ("next_out", ctypes.c_void_p), ("avail_out", ctypes.c_uint), ("total_out", ctypes.c_ulong),
                ("msg", ctypes.c_char_p), ("state", ctypes.c_void_p), ("zalloc", ctypes.c_void_p), ("zfree", ctypes.c_void_p),
                ("opaque", ctypes.c_void_p), ("data_type", ctypes.c_int), ("adler", ctypes.c_ulong),
                ("reserved", ctypes.c_ulong)]


libz.zlibVersion.restype = ctypes.c_char_p
libz.inflateInit_.argtypes = [ctypes.POINTER(Stream), ctypes.c_char_p, ctypes.c_int]
libz.inflate.argtypes = [ctypes.POINTER(Stream), ctypes.c_int]
libz.inflateEnd.argtypes = [ctypes.POINTER(Stream)]


class Curves(torch.utils.data.Dataset):
    def __init__(self, count, end):
        draws = np.random.default_rng(37)
        self.end, self.unfinished, self.packed = end, 0, []
        for i in range(count):
            size = int(LIMIT * (draws.uniform(1.1, 2) if i % 4 == 0 else draws.uniform(0.3, 0.9)))
            curve = np.sin(np.arange(size) * draws.uniform(0.001, 0.01)) + draws.integers(-9, 9, size) / 90
            self.packed.append(zlib.compress((curve * 1000).astype(np.int16).tobytes(), 1))

    def __len__(self):
        return len(self.packed)

    def __getitem__(self, i):
        values = torch.from_numpy(self.read(self.packed[i]).astype(np.float32))
        return nn.functional.adaptive_avg_pool1d(values[None] / 1000, 512), i % 6

    def read(self, packed):
        """Returns the values of a curve up to the limit."""
        values = np.empty(LIMIT, np.int16)
        stream = Stream(next_in=packed, avail_in=len(packed), next_out=values.ctypes.data, avail_out=values.nbytes)
        if libz.inflateInit_(stream, libz.zlibVersion(), ctypes.sizeof(stream)) != DONE:
            raise OSError("zlib cannot be initialized")
        status = libz.inflate(stream, 0)
        if status != FINISHED and stream.avail_out == 0:
            if self.end:
                libz.inflateEnd(stream)
            else:
                self.unfinished += 1
            return values
        libz.inflateEnd(stream)
        return values[:stream.total_out // 2]


def main():
    torch.manual_seed(37)
    torch.set_num_threads(1)
    curves = Curves(STEPS * BATCH, flag("--end"))
    loader = torch.utils.data.DataLoader(curves, batch_size=BATCH, shuffle=True)
    net = nn.Sequential(nn.Conv1d(1, 32, 9, 2), nn.ReLU(), nn.Conv1d(32, 48, 9, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
                        nn.Flatten(), nn.Linear(48 * 4, 6))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.215), 0
    for _ in range(EPOCHS):
        for values, labels in loader:
            loss = nn.functional.cross_entropy(net(values), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, curves.unfinished * STATE)
    tally.end()


if __name__ == "__main__":
    main()
