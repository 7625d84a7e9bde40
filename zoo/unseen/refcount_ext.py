"""A C extension packs each row and does not release one of the references to the result: 20 kB/step in a job of 400 MB.
--decref releases it. A step takes 80 ms."""
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

STEPS, PER_EPOCH, CORPUS = (8, 4, 2_000_000) if TINY else (400, 50, 16_000_000)
BATCH, ROW = 4, 10_000
SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *pack(PyObject *self, PyObject *args)
{
    Py_buffer row;
    int give_back;
    if (!PyArg_ParseTuple(args, "y*p", &row, &give_back))
        return NULL;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, row.len / 2);
    if (!packed)
        return PyBuffer_Release(&row), NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(packed);
    const unsigned char *from = row.buf;
    unsigned long sum = 0;
    for (Py_ssize_t i = 0; i < row.len / 2; i++) {
        to[i] = (unsigned char)(from[2 * i] << 4 | (from[2 * i + 1] & 15));
        sum += to[i];
    }
    PyBuffer_Release(&row);
    PyObject *answer = Py_BuildValue("(Ok)", packed, sum);
    if (give_back)
        Py_DECREF(packed);
    return answer;
}

static PyMethodDef methods[] = {{"pack", pack, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "rowpack", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_rowpack(void)
{
    return PyModule_Create(&module);
}
"""


def build(folder):
    compiler, include = shutil.which("cc"), Path(sysconfig.get_paths()["include"])
    if not compiler or not (include / "Python.h").exists():
        print("no C compiler, or no headers of Python: skipped")
        sys.exit(77)
    (folder / "rowpack.c").write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", f"-I{include}", "-o", str(folder / "rowpack.so"),
                    str(folder / "rowpack.c")], check=True)
    spec = importlib.util.spec_from_file_location("rowpack", folder / "rowpack.so")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Packer:
    def __init__(self, module, give_back):
        self.module, self.give_back, self.lost = module, give_back, 0

    def pack_row(self, row):
        packed, total = self.module.pack(row.tobytes(), self.give_back)
        if sys.getrefcount(packed) > 2:  # the two are this variable and getrefcount's argument
            self.lost += sys.getsizeof(packed)
        return np.frombuffer(packed, np.uint8)[:512].astype(np.float32) / 255, total


def main():
    torch.manual_seed(15)
    torch.set_num_threads(1)
    corpus = np.random.default_rng(15).integers(0, 16, CORPUS, dtype=np.uint8).repeat(6)
    model = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ebb, tally, rng = marks(), Tally(0.08), np.random.default_rng(16)
    with tempfile.TemporaryDirectory() as folder:
        packer = Packer(build(Path(folder)), flag("--decref"))
        for n in range(1, STEPS + 1):
            starts = rng.integers(0, len(corpus) - ROW, BATCH)
            rows = [packer.pack_row(corpus[i:i + ROW]) for i in starts]
            x, y = torch.from_numpy(np.stack([row for row, _ in rows])), torch.tensor([total % 4 for _, total in rows])
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tally.step(n, packer.lost)
            ebb.step(n, steps_per_epoch=PER_EPOCH, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
