#!/usr/bin/env python3
"""Attaches to programs of the zoo at step 50, and compares the verdict and the leaking line with the truth.

    bench/attach/zoo.py [--python PYTHON] [--jobs 2] [NAME…]      NAME-fixed is the variant without the leak

Each program also runs under ebb run at the same time, for comparison."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["dict_cache", "c_buffer", "kept_loss_graph", "gc_cycles", "lru_cache_method", "hook_cycle",
         "logger_table", "dict_cache-fixed", "c_buffer-fixed", "kept_loss_graph-fixed"]


def start_until_step(python, name, flags, folder, step):
    """Starts a program, receives its marks up to step STEP, and closes the socket. Returns the process."""
    path = folder / "marks"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks:
        marks.bind(str(path))
        marks.settimeout(120)
        # The program's path is relative, because the tables of `ebb heap` do not shorten paths.
        job = subprocess.Popen([python, f"zoo/{name}/main.py", *flags], cwd=ROOT,
                               env={**os.environ, "EBB_SOCKET": str(path)},
                               stdout=subprocess.DEVNULL)
        while True:
            found = re.findall(r"^STEP=(\d+)", marks.recv(1 << 16).decode(), re.M)
            if found and int(found[-1]) >= step:
                break
    path.unlink()
    return job


def verdict_of(options, run, truth):
    """Returns the verdict on a recording, whether it is right, and whether one of the first three rows of `ebb heap` is
    the leaking line."""
    result = subprocess.run([options.program, "verdict", "--json", run], stdout=subprocess.PIPE, text=True)
    tree = json.loads(result.stdout)
    tree = tree.get("tree", tree)
    heap = subprocess.run([options.program, "heap", run, "--top", "3"], stdout=subprocess.PIPE, text=True).stdout
    culprit = truth.get("culprit") or {}
    functions = [culprit.get("function"), *culprit.get("made_in", [])]
    line = any(f and f.split(".")[-1] in heap for f in functions) if truth["leak"] else None
    right = {True: "yes", False: "WRONG"}.get(tree["leak"] == truth["leak"]) if tree["leak"] is not None else "open"
    return tree["verdict"], right, line


def judge(options, name):
    program, _, variant = name.partition("-")
    truth = json.loads((ROOT / "zoo" / program / "truth.json").read_text())
    flags = []
    if variant:
        truth = truth["twin"]
        flags = [truth["flag"]]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-zoo-"))
    try:
        beside = subprocess.Popen([options.program, "run", "--run-dir", folder / "beside", "--", options.python,
                                   f"zoo/{program}/main.py", *flags], cwd=ROOT, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        job = start_until_step(options.python, program, flags, folder, options.step)
        ebb = subprocess.run([options.program, "attach", "--run-dir", folder / "run", str(job.pid)],
                             stderr=subprocess.PIPE, text=True, timeout=600)
        status = job.wait(timeout=600)
        if ebb.returncode:
            return name, status, truth["leak"], ("-", "-", ebb.stderr.strip()), ("-", "-", "-")
        beside.wait(timeout=600)
        return (name, status, truth["leak"], verdict_of(options, folder / "run", truth),
                verdict_of(options, folder / "beside", truth))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--program", default=ROOT / "build" / "ebb")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--step", type=int, default=50)
    options = parser.parse_args()
    print(f"{'program':24} {'exit':>4}  {'leak':5}  {'attached':10}  {'right':5}  {'line':5}  "
          f"{'ebb run':10}  {'right':5}  line")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, status, leak, *found in pool.map(lambda n: judge(options, n), options.names):
            columns = [f"{word:10}  {right:5}  {line!s:5}" for word, right, line in found]
            print(f"{name:24} {status:4}  {leak!s:5}  {'  '.join(columns)}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
