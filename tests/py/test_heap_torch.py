"""Tests the heap profile of real torch training: the first row names the collator that keeps its
batches, no matter which process runs the collator. The profiler does not change the training
result."""

import json
import subprocess
import sys

import pytest

from jobs import PATIENCE_S, binary, environment

pytest.importorskip("torch", reason="torch is not installed")

# The batches account for far more than a tenth of all live memory.
BATCHES, BATCH_BYTES = 40, 3 * 8 * 3 * 128 * 128 * 4
TRAINING = """
import glob, os, sys, time
BEGAN = time.monotonic()
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 8 * 40
    def __getitem__(self, n):
        generator = torch.Generator().manual_seed(n)
        return torch.randn(3, 128, 128, generator=generator), n % 4

class Collator:
    def __init__(self):
        self.seen = []
        self.pause_s = None
    def wait(self):
        # What grows is what grows from the first step on: it comes when every worker has imported
        # torch, and the steps after it take longer than that did, however busy the machine is.
        open(f"ready.{os.getpid()}", "w").close()
        while len(glob.glob("ready.*")) < WORKERS:
            time.sleep(0.05)
        if self.pause_s is None and os.path.exists("stepped"):
            self.pause_s = max(0.15, 1.5 * (time.monotonic() - BEGAN) / 30) * WORKERS
        time.sleep(self.pause_s or 0.15 * WORKERS)
    def __call__(self, items):
        if KEEPS:
            self.wait()
        images = torch.stack([image for image, _ in items])
        if KEEPS:
            self.seen.append(images.repeat(3, 1, 1, 1))  # leaks
        return images, torch.tensor([label for _, label in items])

def train(workers, way):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=4), torch.nn.ReLU(),
                                torch.nn.Flatten(), torch.nn.Linear(4 * 32 * 32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Images(), batch_size=8, num_workers=workers, collate_fn=COLLATOR,
                        multiprocessing_context=way)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        open("stepped", "w").close()
    print(repr(loss.item()))

KEEPS = sys.argv[1] == "keeps"
WORKERS = max(1, int(sys.argv[2]))
COLLATOR = Collator()  # until the interpreter ends: what train() would let go is read now and then
if __name__ == "__main__":
    train(int(sys.argv[2]), sys.argv[3] if sys.argv[2] != "0" else None)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def heap(run, *flags):
    text = subprocess.run([binary(), "heap", run.folder, "--json", *map(str, flags)], check=True,
                          env=environment(), stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout
    return json.loads(text)


def leaking_line():
    lines = TRAINING.split("\n")
    return 1 + next(i for i, line in enumerate(lines) if line.endswith("# leaks"))


def is_leak(row, script):
    return (row["where"]["file"], row["where"]["line"]) == (str(script), leaking_line())


@pytest.mark.parametrize("workers, way", [(0, "none"), (2, "fork"), (2, "spawn")])
def test_leaking_collator_is_the_first_row_of_the_heap_profile(run_job, script, workers, way):
    # The time limit is doubled, because the script imports torch three times.
    run = run_job(sys.executable, script, "keeps", workers, way, timeout=2 * PATIENCE_S)
    assert run.status == 0, run.stderr
    doc = heap(run)
    first, each = doc["rows"][0], BATCHES // max(workers, 1) * BATCH_BYTES
    assert is_leak(first, script), first["where"]
    assert first["where"]["function"].endswith("Collator.__call__" if sys.version_info >= (3, 11)
                                               else "__call__")
    sigma = (first["live"]["high"] - first["live"]["bytes"]) / 1.96
    # A batch is nine sampling intervals long. In one of 8,000 runs, sampling misses a whole batch,
    # and the estimate is then wrong by far more than sigma.
    assert 0 < sigma < each / 2
    assert abs(first["live"]["bytes"] - each) < 7 * sigma + 2 * BATCH_BYTES
    assert doc["cost"]["python"]["state"] == "Python frames are read"
    workers_with_it = [other["pid"] for other in doc["others"]
                       if any(is_leak(row, script) for row in heap(run, "--pid", other["pid"])
                              ["rows"])]
    assert len(workers_with_it) == max(workers - 1, 0)


@pytest.mark.parametrize("workers, way", [(0, "none"), (2, "fork")])
def test_training_result_is_unchanged_under_the_profiler(run_job, script, workers, way):
    runs = [run_job(sys.executable, script, "forgets", workers, way, options=options)
            for options in (["--heap-interval", "4K"], ["--no-heap"])]
    assert [run.status for run in runs] == [0, 0], [run.stderr for run in runs]
    assert len({run.stdout for run in runs}) == 1
    assert 0 < float(runs[0].stdout) < 100
    assert list(runs[0].folder.glob("heap.*")) and not list(runs[1].folder.glob("heap.*"))
    assert not any(is_leak(row, script) for row in heap(runs[0])["rows"])


# The 61st nested backward pass runs in another thread without Python frames, like every backward
# pass on a GPU.
BACKWARD = """
import os
import torch
torch.set_num_threads(1)
inputs = torch.ones(4, 4096)
kept = []

class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            if ctx.depth > 0:
                Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).backward()
            else:
                weight = torch.ones(4096, 4096, requires_grad=True)
                (inputs @ weight).sum().backward()
                kept.append(weight.grad)
        return gradient, None

for step in range(6):
    weight = torch.ones(4096, 4096, requires_grad=True)
    (inputs @ weight).sum().backward()  # called here
    kept.append(weight.grad)
    Nested.apply(torch.ones(1, requires_grad=True), 60).backward()
os._exit(0)  # torch aborts now and then when its threads for nested passes end at exit
"""


def test_memory_of_a_backward_pass_is_named_after_the_autograd_node(run_job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(BACKWARD)
    run = run_job(sys.executable, script)
    assert run.status == 0, run.stderr
    rows = heap(run)["rows"]
    line = 1 + next(i for i, text in enumerate(BACKWARD.split("\n"))
                    if text.endswith("# called here"))
    called, = [row for row in rows
               if (row["where"]["file"], row["where"]["line"]) == (str(script), line)]
    alone, = [row for row in rows if row["where"]["function"] == "backward of MmBackward0"]
    assert called["native"]["function"] == "backward of MmBackward0"
    # six gradients of 64 MiB; smaller ones might not all be sampled, because importing torch raises
    # the sampling interval, on some machines to 4 MiB or more
    for row in (called, alone):
        assert 320 << 20 < row["live"]["bytes"] < 448 << 20


# the batches, 1.5 MiB each, which arrive in shared memory
KEPT_BATCHES = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 8 * 60
    def __getitem__(self, n):
        return torch.full((3, 128, 128), float(n))

def train():
    torch.set_num_threads(1)
    weight = torch.ones(128, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    seen, ended = [], time.monotonic() + 12
    for epoch in range(2):
        for images in DataLoader(Images(), batch_size=8, num_workers=1):  # kept
            (images @ weight).mean().backward()
            optimizer.step()
            seen.append(images)
            time.sleep(max(0, ended - time.monotonic()) / (121 - len(seen)))

train()
"""


def test_kept_batches_of_loader_workers_are_diagnosed_as_shared_memory(run_job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(KEPT_BATCHES)
    run = run_job(sys.executable, script)
    assert run.status == 0, run.stderr
    doc = json.loads(subprocess.run([binary(), "diagnose", run.folder, "--json"], env=environment(),
                                    stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout)
    line = 1 + next(i for i, text in enumerate(KEPT_BATCHES.split("\n")) if text.endswith("# kept"))
    entries = [entry for entry in doc["ledger"]["entries"]
               if entry["site"] and entry["site"]["line"] == line]
    # On a busy machine, further entries may show a part of one batch as heap.
    others = sum(entry["growth_bytes"] for entry in entries[1:])
    assert entries[0]["kind"] == "shared memory" and others < 10 << 20, doc["ledger"]["entries"]
    assert entries[0]["growth_bytes"] > 100 << 20
    assert not any(".item()" in one["what"] for one in doc["advice"]), doc["advice"]
    assert "seen" in doc["advice"][0]["what"] or "batches" in doc["advice"][0]["what"]
