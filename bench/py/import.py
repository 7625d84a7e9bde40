#!/usr/bin/env python3
"""What the shim adds to the start of a Python that does not use torch.

    bench/py/import.py [--python PATH] [--times N]

Starts PATH with and without the shim in turns and prints the medians. The bar is 5 ms.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

SHIM = pathlib.Path(__file__).resolve().parents[2] / "python" / "ebb" / "_shim"
BAR_MS = 5


def start_ms(python, env):
    begin = time.perf_counter()
    subprocess.run([python, "-c", ""], env=env, check=True)
    return (time.perf_counter() - begin) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--times", type=int, default=101)
    arguments = parser.parse_args()
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    shimmed = dict(plain, PYTHONPATH=str(SHIM), EBB_SOCKET="/nonexistent/marks")
    pairs = [(start_ms(arguments.python, plain), start_ms(arguments.python, shimmed))
             for _ in range(arguments.times)]
    without, with_ = (statistics.median(times) for times in zip(*pairs))
    added = statistics.median(b - a for a, b in pairs)
    print(f"without {without:.2f} ms, with {with_:.2f} ms, added {added:.2f} ms (bar {BAR_MS} ms)")
    return added > BAR_MS


if __name__ == "__main__":
    sys.exit(main())
