#!/usr/bin/env python3
"""Measures the cost of the GPU hook. Three variants alternate in one process: without a hook ("plain"), with ebb's
hook, and with PyTorch's own memory history in its cheapest form that records lines. Run it under ebb:

    ebb run -- zoo/gpu/cost.py --seconds 70 --json FILE

A training step of a small transformer is repeated in blocks of --block-ms; before each block, the slot through which
libc10_cuda.so calls the report function is set either to libc10's function ("plain") or to ebb's. Blocks come in random
order within each round. The result is the time per step relative to "plain", with a bootstrap interval of 95 %."""
import argparse
import ctypes
import json
import pathlib
import random
import struct
import sys
import time

import torch
from torch import nn

SYMBOL = b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
ARMS = ("plain", "ebb", "history")


def mapped(name):
    """Returns the path and the load address of a library loaded in this process."""
    for line in open("/proc/self/maps", encoding="utf-8"):
        part = line.split()
        if len(part) >= 6 and pathlib.Path(part[5]).name == name:
            return part[5], int(part[0].split("-")[0], 16)
    return None, None


def slot_of(path, base):
    """Returns the address of the GOT slot of SYMBOL, from the dynamic relocations of the 64-bit ELF file at PATH."""
    data = pathlib.Path(path).read_bytes()
    phoff, = struct.unpack_from("<Q", data, 32)
    phsize, phcount = struct.unpack_from("<HH", data, 54)
    heads = [struct.unpack_from("<IIQQQQQQ", data, phoff + i * phsize) for i in range(phcount)]
    dynamic = next(h for h in heads if h[0] == 2)
    tags = {}
    for at in range(dynamic[2], dynamic[2] + dynamic[5], 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == 0:
            break
        tags[tag] = value

    def offset(address):
        head = next(h for h in heads if h[0] == 1 and h[3] <= address < h[3] + h[5])
        return address - head[3] + head[2]

    symbols, strings = offset(tags[6]), offset(tags[5])
    for table, size in ((tags.get(23), tags.get(2)), (tags.get(7), tags.get(8))):
        for at in range(offset(table), offset(table) + size, 24) if table else ():
            where, info, _ = struct.unpack_from("<QQq", data, at)
            name, = struct.unpack_from("<I", data, symbols + (info >> 32) * 24)
            begin = strings + name
            if info >> 32 and data[begin:begin + len(SYMBOL) + 1] == SYMBOL + b"\0":
                return base + where
    return None


class Switch:
    """Switches ebb's hook on and off in this process."""

    def __init__(self):
        path, base = mapped("libc10_cuda.so")
        c10, _ = mapped("libc10.so")
        address = slot_of(path, base) if path else None
        if not address:
            sys.exit("cost.py: libc10_cuda.so does not import the report function")
        page = address & ~4095
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(8192), 3) != 0:
            sys.exit("cost.py: the slot cannot be written")
        self.slot = ctypes.c_uint64.from_address(address)
        plain = ctypes.cast(getattr(ctypes.CDLL(c10), SYMBOL.decode()), ctypes.c_void_p).value
        hook, start = self.hook()
        self.value = {"plain": plain, "history": plain, "ebb": hook}
        print(f"slot had {self.slot.value:#x}, hook {hook or 0:#x}, plain {plain:#x}", flush=True)
        if hook is None:
            sys.exit("cost.py: libebb-heap.so is not loaded; run this under ebb run")

    @staticmethod
    def hook():
        path, start = mapped("libebb-heap.so")
        if not path:
            return None, None
        return ctypes.cast(getattr(ctypes.CDLL(path), SYMBOL.decode()), ctypes.c_void_p).value, start

    def set(self, arm):
        self.slot.value = self.value[arm]
        if arm == "history":
            torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100000)
        else:
            torch.cuda.memory._record_memory_history(None)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def trainer():
    net = nn.Sequential(*(Block(256) for _ in range(6)), nn.Linear(256, 100)).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=True)
    x, y = torch.randn(32, 64, 256, device="cuda"), torch.randint(100, (32, 64), device="cuda")

    def step():
        opt.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        opt.step()
    return step


def allocations():
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def interval(ratios, rounds=2000):
    """Returns the mean of the middle half of the sorted ratios, with its bootstrap interval."""
    def middle(values):
        values = sorted(values)
        cut = len(values) // 4
        part = values[cut:len(values) - cut] or values
        return sum(part) / len(part)
    draws = sorted(middle(random.choices(ratios, k=len(ratios))) for _ in range(rounds))
    return middle(ratios), draws[int(0.025 * rounds)], draws[int(0.975 * rounds)]


def measure(seconds, block_s):
    switch, step = Switch(), trainer()
    for arm in ARMS * 2:
        switch.set(arm)
        for _ in range(20):
            step()
    torch.cuda.synchronize()
    rows, rates, began = [], [], time.monotonic()
    while time.monotonic() - began < seconds:
        times = {}
        for arm in random.sample(ARMS, len(ARMS)):
            switch.set(arm)
            step()
            torch.cuda.synchronize()
            n, before, start = 0, allocations(), time.perf_counter()
            while time.perf_counter() - start < block_s:
                step()
                n += 1
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            times[arm] = spent / n
            if arm == "plain":
                rates.append((allocations() - before) / spent)
        rows.append(times)
    switch.set("ebb")
    return rows, sum(rates) / len(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=70)
    parser.add_argument("--block-ms", type=float, default=60)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("cost.py: no GPU")
    random.seed(3)
    rows, rate = measure(options.seconds, options.block_ms / 1000)
    result = {"rounds": len(rows), "allocations_per_s": rate,
              "step_ms": sorted(r["plain"] for r in rows)[len(rows) // 2] * 1000}
    for arm in ARMS[1:]:
        mean, low, high = interval([r[arm] / r["plain"] - 1 for r in rows])
        # ns_per_allocation: the time that an allocation and its free add in the allocating thread
        result[arm] = {"percent": 100 * mean, "low": 100 * low, "high": 100 * high,
                       "ns_per_allocation": mean / rate * 1e9,
                       "percent_at_20000_per_s": 100 * mean * 20000 / rate,
                       "high_at_20000_per_s": 100 * high * 20000 / rate}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
