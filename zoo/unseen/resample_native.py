"""Trains in numpy on sounds that a small C library resamples. The library returns a buffer for each sound. The buffers
are never freed; `--release` frees each after use. The script sends marks for its steps.
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

try:
    import ebb
except ImportError:
    ebb = None
if os.environ.get("HELD_NO_MARKS"):
    ebb = None

SOURCE = """
#include <stdlib.h>
float *resampled_new(const float *in, long n, long m)
{
    float *out = malloc(m * sizeof *out);
    for (long i = 0; out && i < m; i++) {
        double at = (double)i * (n - 1) / m;
        long k = (long)at;
        out[i] = (float)(in[k] + (in[k + 1] - in[k]) * (at - k));
    }
    return out;
}
void resampled_free(float *p) { free(p); }
"""
RAW, WANTED = 44100, 88000
STEPS, EPOCHS, STEP_S = 220, 6, 0.028


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def build(folder):
    compiler = shutil.which("cc")
    if not compiler:
        print("no C compiler here")
        sys.exit(77)
    source = Path(folder) / "resample.c"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", f"{folder}/libresample.so", source], check=True)
    library = ctypes.CDLL(f"{folder}/libresample.so")
    pointer = ctypes.POINTER(ctypes.c_float)
    library.resampled_new.argtypes = [pointer, ctypes.c_long, ctypes.c_long]
    library.resampled_new.restype = pointer
    library.resampled_free.argtypes = [pointer]
    return library


class Resampler:
    def __init__(self, library, release):
        self.library, self.release, self.out = library, release, 0

    def features(self, sound):
        raw = sound.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        buffer = self.library.resampled_new(raw, len(sound), WANTED)
        self.out += 1
        frames = np.ctypeslib.as_array(buffer, (WANTED,)).reshape(-1, 400)
        spectrum = np.abs(np.fft.rfft(frames[::2], axis=1)).mean(axis=0)
        if self.release:
            self.library.resampled_free(buffer)
            self.out -= 1
        return np.log1p(spectrum)


def train(resampler, steps, step_s):
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal(RAW).astype(np.float32) for _ in range(40)]
    weights, rows = np.zeros((201, 5)), []
    for epoch in range(EPOCHS):
        for index in range(steps):
            began = time.monotonic()
            x = resampler.features(sounds[rng.integers(len(sounds))])
            p = np.exp(x @ weights - (x @ weights).max())
            p /= p.sum()
            p[index % 5] -= 1
            weights -= 1e-3 * np.outer(x, p)
            time.sleep(max(0, began + step_s - time.monotonic()))
            rows.append((len(rows) + 1, resampler.out * WANTED * 4, resident()))
            if ebb:
                ebb.step(len(rows), steps_per_epoch=steps, max_steps=steps * EPOCHS)
        print("epoch", epoch, "norm", float(np.abs(weights).sum()))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--release", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        resampler = Resampler(build(folder), args.release)
        start = time.monotonic()
        rows = train(resampler, 10 if args.tiny else STEPS, 0 if args.tiny else STEP_S)
    step, live, rss = zip(*rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
