"""Tests `ebb attach` on torch training: it records steps and the leaking line, and does not change
the result."""

import json
import pathlib
import subprocess
import sys

import pytest

from jobs import PATIENCE_S, binary, environment

pytest.importorskip("torch")
LIBRARY = pathlib.Path(binary()).resolve().parent / "libebb-heap.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built")

# This job trains with workers until its input is closed, or for the number of steps given as
# argument, and prints the number of steps and the sum of the weights.
TRAINING = """import select, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
kept = []
def is_over(step):
    if len(sys.argv) > 1:
        return step == int(sys.argv[1])
    return bool(select.select([sys.stdin], [], [], 0)[0])
def main():
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader, step = DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True), 0
    while True:
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(torch.ones(64, 1024))
            step += 1
            if len(sys.argv) == 1:
                time.sleep(0.005)
            if step == 20:
                print("ready", flush=True)
            if is_over(step):
                print(step, sum(float(p.double().sum()) for p in model.parameters()), flush=True)
                return
if __name__ == "__main__":
    main()
"""
LEAKING_LINE = TRAINING[:TRAINING.index("kept.append")].count("\n") + 1


def train(folder, *arguments):
    return subprocess.Popen([sys.executable, "train.py", *arguments], cwd=folder, env=environment(),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_attach_records_steps_without_changing_the_weights(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    job = train(tmp_path)
    assert job.stdout.readline() == "ready\n"
    ebb = subprocess.run([binary(), "attach", "--for", "8s", "--run-dir", "run", str(job.pid)],
                         cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True,
                         timeout=PATIENCE_S)
    assert ebb.returncode == 0, ebb.stderr
    assert f"attached to process {job.pid} (" in ebb.stderr
    assert "without heap profile" not in ebb.stderr
    steps, weights = job.communicate(timeout=PATIENCE_S)[0].split()
    assert job.returncode == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["attached"] and run["marks"]["steps"] > 20, run["marks"]
    heap = subprocess.run([binary(), "heap", "run", "--top", "1"], cwd=tmp_path, env=environment(),
                          stdout=subprocess.PIPE, text=True)
    assert f"train.py:{LEAKING_LINE} main" in heap.stdout
    again = train(tmp_path, steps)
    assert again.communicate(timeout=PATIENCE_S)[0].split()[1:] == [steps, weights]
