#!/usr/bin/env python3
"""Runs out of GPU memory twice. The first time it catches the error and continues. The second time the error ends the
program, unless --catch is given. The largest call site is keep()."""
import sys

import torch

held = []


def keep(share):
    free, _ = torch.cuda.mem_get_info()
    for _ in range(10):
        held.append(torch.empty(int(free * share / 10), dtype=torch.uint8, device="cuda"))


def too_much():
    return torch.empty(2 * torch.cuda.get_device_properties(0).total_memory, dtype=torch.uint8, device="cuda")


def main():
    torch.cuda.set_per_process_memory_fraction(0.05)
    keep(0.02)
    try:
        too_much()
    except torch.OutOfMemoryError:
        print("caught", flush=True)
    torch.empty(1 << 20, device="cuda")
    if "--catch" in sys.argv:
        return
    keep(0.2)


if __name__ == "__main__":
    main()
