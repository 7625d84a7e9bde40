"""Recordings with big-endian samples are cropped at random and converted by a C function, which takes a structure whose
last field is as long as the crop. The reader keeps the ctypes type of every length that has occurred, and hardly any length
recurs. With --pointer the C function takes an address instead of a structure. (cpython #100926, pypdfium2 #346)"""
import ctypes

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, LONGEST = (2, 4, 4, 4000) if TINY else (5, 42, 12, 90_000)
TYPE = 6_450  # bytes of one type with its array type and fields, measured in isolation

libc = ctypes.CDLL(None)
libc.swab.restype = None
libc.swab.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_ssize_t]


class Reader:
    """Converts samples to the byte order of this machine."""

    def __init__(self, by_pointer):
        self.by_pointer, self.types = by_pointer, {}

    def packet_type(self, length):
        if length not in self.types:
            class Packet(ctypes.Structure):
                _fields_ = [("rate", ctypes.c_int32), ("channels", ctypes.c_int32), ("samples", ctypes.c_int16 * length)]

            self.types[length] = Packet
        return self.types[length]

    def convert(self, raw):
        length = len(raw) // 2
        if self.by_pointer:
            samples = np.empty(length, np.int16)
            libc.swab(raw, samples.ctypes.data, 2 * length)
            return samples
        packet = self.packet_type(length)(16_000, 1)
        libc.swab(raw, ctypes.addressof(packet) + 8, 2 * length)
        return np.frombuffer(packet, np.int16, length, 8).copy()


class Recordings(torch.utils.data.Dataset):
    def __init__(self, count, reader):
        draws = np.random.default_rng(34)
        self.reader, self.draws = reader, np.random.default_rng(35)
        self.raw = [draws.integers(-9000, 9000, int(draws.integers(LONGEST // 2, LONGEST))).astype(">i2").tobytes()
                    for _ in range(count)]

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        raw = self.raw[i]
        length = int(self.draws.integers(len(raw) // 8, len(raw) // 2))
        start = 2 * int(self.draws.integers(0, len(raw) // 2 - length))
        samples = self.reader.convert(raw[start:start + 2 * length])
        frames = samples[:len(samples) // 256 * 256].reshape(-1, 256).astype(np.float32) / 9000
        return torch.from_numpy(np.sqrt((frames ** 2).reshape(len(frames), 16, 16).mean(2))), i % 8


def collate(items):
    frames = nn.utils.rnn.pad_sequence([frames for frames, _ in items], batch_first=True)
    return frames, torch.tensor([label for _, label in items])


def main():
    torch.manual_seed(34)
    torch.set_num_threads(1)
    reader = Reader(flag("--pointer"))
    loader = torch.utils.data.DataLoader(Recordings(STEPS * BATCH, reader), batch_size=BATCH, shuffle=True, collate_fn=collate)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.21), 0
    for _ in range(EPOCHS):
        for frames, labels in loader:
            loss = nn.functional.cross_entropy(net(frames).mean(1), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, len(reader.types) * TYPE)
    tally.end()


if __name__ == "__main__":
    main()
