"""A C library maps memory for a spectrum and a tail of 64 pages, but unmaps only the memory of the spectrum, so the
tail stays mapped after each call. With --long-only this happens only for long clips, which occur from the third epoch
on. Both variants leak. Uses only numpy."""
import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH = (10, 2) if TINY else (190, 38)
LONG_FROM = 2 * PER_EPOCH
CALLS, SHORT, LONG, TAIL_PAGES, PAGE = 2, 40_000, 60_000, 64, 4096
SOURCE = r"""
#define _GNU_SOURCE
#include <string.h>
#include <stddef.h>
#include <sys/mman.h>

double spectrum(const float *clip, long n, long tail, int keep_tail, float *out, long bins)
{
    size_t asked = ((size_t)n * sizeof(float) + 4095) & ~(size_t)4095;
    char *room = mmap(NULL, asked + (size_t)tail, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return -1;
    float *work = (float *)room;
    memcpy(work, clip, (size_t)n * sizeof(float));
    memset(room + asked, 1, (size_t)tail);
    double sum = 0;
    for (long b = 0; b < bins; b++) {
        float most = 0;
        for (long i = b; i < n; i += bins)
            most = work[i] > most ? work[i] : most;
        out[b] = most;
        sum += most;
    }
    munmap(room, keep_tail ? asked : asked + (size_t)tail);
    return sum;
}
"""


def build(folder):
    if not shutil.which("cc"):
        print("no C compiler: skipped")
        sys.exit(77)
    (folder / "spectrum.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "libspectrum.so"),
                    str(folder / "spectrum.c")], check=True)
    library = ctypes.CDLL(str(folder / "libspectrum.so"))
    library.spectrum.restype = ctypes.c_double
    library.spectrum.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_void_p,
                                 ctypes.c_long]
    return library


class Front:
    def __init__(self, library, long_only):
        self.library, self.long_only, self.lost = library, long_only, 0

    def features(self, clip):
        out = np.empty(200, np.float32)
        keep = not self.long_only or len(clip) >= LONG
        self.library.spectrum(clip.ctypes.data, len(clip), TAIL_PAGES * PAGE, keep, out.ctypes.data, len(out))
        self.lost += TAIL_PAGES * PAGE if keep else 0
        return out


def main():
    rng = np.random.default_rng(4)
    corpus = rng.random(12_000_000, dtype=np.float32)
    weights, ebb, tally = np.zeros(200, np.float32), marks(), Tally(0.205)
    with tempfile.TemporaryDirectory() as folder:
        front = Front(build(Path(folder)), flag("--long-only"))
        for n in range(1, STEPS + 1):
            size = LONG if n > LONG_FROM else SHORT
            for at in rng.integers(0, len(corpus) - size, CALLS):
                x = front.features(np.ascontiguousarray(corpus[at:at + size]))
                weights += 1e-3 * (float(corpus[at]) - x @ weights) * x
            tally.step(n, front.lost)
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
