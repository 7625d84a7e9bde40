#!/usr/bin/env python3
"""Compares the live GPU bytes that ebb reports with torch.cuda.memory_allocated(), at many memory levels of one
process. Run it under ebb:

    ebb run -- zoo/gpu/live.py --json FILE

At each level the program stops allocating and runs `ebb heap --gpu` on itself. The total that the hook counted must be
equal to PyTorch's figure, and PyTorch's figure must be within the bounds of the estimate from samples. At the last
levels the blocks are so large that every block is sampled, so the estimate must also be equal."""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import torch

EBB = os.environ.get("EBB_BINARY", str(pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "ebb"))


def ask():
    """Returns the GPU heap. Waits first, because ebb reads each heap table only once per second."""
    time.sleep(1.2)
    done = subprocess.run([EBB, "heap", "--gpu", "--json", os.environ["EBB_RUN_DIR"], "--pid", str(os.getpid())],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.decode(errors="replace")}


def churn(n):
    """Allocates and frees temporary blocks, as a training step does."""
    for _ in range(n):
        torch.empty(random.randrange(1 << 10, 4 << 20), dtype=torch.uint8, device="cuda")


def compare(level, rows):
    torch.cuda.synchronize()
    found, truth = ask(), torch.cuda.memory_allocated()
    gpu = (found.get("gpus") or [{}])[0]
    live = found.get("live") or {}
    rows.append({"level": level, "truth": truth, "hook": gpu.get("allocated_bytes"), "estimate": live.get("bytes"),
                 "low": live.get("low"), "high": live.get("high"), "error": found.get("error")})
    print(rows[-1], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--levels", type=int, default=12)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("live.py: no GPU")
    random.seed(5)
    held, rows = [], []
    for level in range(options.levels):
        churn(300)
        for _ in range(150):
            held.append(torch.empty(random.randrange(64 << 10, 8 << 20), dtype=torch.uint8, device="cuda"))
            if len(held) > 40 and random.random() < 0.3:
                held.pop(random.randrange(len(held)))
        compare(level, rows)
    held.clear()
    time.sleep(2)
    large = []
    for level in range(options.levels, options.levels + 3):
        for _ in range(4):
            large.append(torch.empty(640 << 20, dtype=torch.uint8, device="cuda"))
        compare(level, rows)
    result = {"compared": len(rows), "hook_equal": sum(r["hook"] == r["truth"] for r in rows),
              "within_bounds": sum(r["low"] is not None and r["low"] <= r["truth"] <= r["high"] for r in rows),
              "large_equal": sum(r["estimate"] is not None and abs(r["estimate"] - r["truth"]) < 4 << 20
                                 for r in rows[-3:]), "rows": rows}
    print({k: v for k, v in result.items() if k != "rows"})
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
