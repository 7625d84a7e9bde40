"""A C library allocates the buffers into which it decodes sound; the program never frees them."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import numpy
import torch
from torch import nn

BATCH = 16
SAMPLES = 262144  # floats: 1 MiB/step


def load_library():
    lib = common.shared_library(Path(__file__).with_name("decode.c"))
    lib.clip_decode.argtypes = [ctypes.c_size_t, ctypes.c_float]
    lib.clip_decode.restype = ctypes.c_void_p
    lib.clip_data.argtypes, lib.clip_data.restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)
    lib.clip_free.argtypes, lib.clip_free.restype = [ctypes.c_void_p], None
    lib.clip_live_bytes.argtypes, lib.clip_live_bytes.restype = [], ctypes.c_size_t
    return lib


def read_batch(lib, phase, twin):
    """Returns the loudness of 16 parts of a clip."""
    clip = lib.clip_decode(SAMPLES, phase)
    sound = numpy.ctypeslib.as_array(lib.clip_data(clip), (SAMPLES,))
    loudness = numpy.square(sound.reshape(BATCH, 64, -1)).mean(2)
    if twin:
        lib.clip_free(clip)
    return torch.from_numpy(loudness)


def main():
    job = common.Job(__doc__, "--fixed", "free the buffer")
    lib = load_library()
    common.settle()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    for _ in range(job.epochs):
        for position in torch.randperm(job.steps_per_epoch).tolist():
            inputs = read_batch(lib, position / job.steps_per_epoch, job.twin)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), inputs[:, :1]).backward()
            optimizer.step()
            job.step(lib.clip_live_bytes())
        job.save(model)
    job.end()


if __name__ == "__main__":
    main()
