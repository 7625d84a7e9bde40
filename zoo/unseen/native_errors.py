"""Each record is looked up in a table of 1 GB. A decoder unpacks each record into memory from C's malloc. For damaged
records, the error path returns without freeing that memory. In total, the leak is 1.5 % of the memory of the process.
--free frees the memory. Does not use torch. (python-lz4 #247, indexed_gzip #82)"""
import ctypes
import zlib

import numpy as np

from tally import TINY, Tally, flag, marks

PER_EPOCH, EPOCHS = (4, 2) if TINY else (66, 3)
STEPS = PER_EPOCH * EPOCHS
TABLE, WIDTH = (20_000 if TINY else 1_000_000), 256
RECORDS, DAMAGED, ROOM = 60, 20, 4096

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]


class Decoder:
    def __init__(self, free):
        self.free, self.lost = free, 0

    def decode(self, packed):
        room = libc.malloc(ROOM)
        ctypes.memset(room, 0, ROOM)
        try:
            record = zlib.decompress(packed)
        except zlib.error:
            if self.free:
                libc.free(room)
            else:
                self.lost += ROOM
            return None
        ctypes.memmove(room, record, len(record))
        values = np.frombuffer(ctypes.string_at(room, len(record)), np.float32)
        libc.free(room)
        return values


def packed_records(rng):
    records = []
    for i in range(RECORDS):
        packed = bytearray(zlib.compress(rng.standard_normal(WIDTH, dtype=np.float32).tobytes(), 1))
        if i % (RECORDS // DAMAGED) == 0:
            packed[-1] ^= 255  # the checksum
        records.append(bytes(packed))
    return records


def main():
    rng, ebb, tally, decoder = np.random.default_rng(13), marks(), Tally(0), Decoder(flag("--free"))
    table = np.empty((TABLE, WIDTH), np.float32)
    for at in range(0, TABLE, 10_000):
        rng.random(out=table[at:at + 10_000], dtype=np.float32)
    weights = np.ones(WIDTH, np.float32)
    for n in range(1, STEPS + 1):
        records = [values for values in map(decoder.decode, packed_records(rng)) if values is not None]
        queries = np.stack(records) * weights
        start = n * 50_000 % (TABLE // 2)
        best = (table[start:start + TABLE // 4] @ queries.T).argmax(0)
        weights += 1e-4 * (table[start + best] * queries).mean(0)
        tally.step(n, decoder.lost)
        ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
