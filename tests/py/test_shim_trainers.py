"""Tests that each step of a trainer is sent only once, although both ebb's callback and its hooks
on torch detect it."""

import importlib.util
import json
import sys

import pytest

from jobs import PACKAGE, run_under_ebb

pytest.importorskip("torch", reason="torch is not installed")

HF = """
import torch
from transformers import Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, i):
        return {"x": torch.randn(4), "labels": torch.randn(1)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        y = self.linear(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4,
                              gradient_accumulation_steps=2, save_strategy="no", report_to=[],
                              use_cpu=True, disable_tqdm=True)
trainer = Trainer(Model(), arguments, train_dataset=Data(), eval_dataset=Data())
trainer.train()
trainer.evaluate()
"""

LIGHTNING = """
import logging
import torch
import PACKAGE as L
from torch.utils.data import DataLoader, TensorDataset

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def training_step(self, batch):
        return ((self.linear(batch[0]) - batch[1]) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

loader = DataLoader(TensorDataset(torch.randn(22, 4), torch.randn(22, 1)), batch_size=4)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                    accumulate_grad_batches=2, enable_progress_bar=False)
trainer.fit(Model(), loader)
"""


def needs(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def assert_sent_once(run):
    assert run.status == 0, run.stderr
    assert [m["step"] for m in run.marks("step")] == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in run.marks("epoch")] == [3, 6]
    assert [m["step"] for m in run.marks("begin")] == [0]
    assert [m["step"] for m in run.marks("end")] == [6]
    assert run.marks("begin")[0]["steps_per_epoch"] == 3
    assert {m["pid"] for m in run.marks()} == {run.marks("begin")[0]["pid"]}


def test_callback_is_not_added_if_the_script_already_has_a_callback(run_job, tmp_path):
    needs("transformers", "accelerate", "ebb.hf")
    text = HF.replace("eval_dataset=Data())", "eval_dataset=Data(), callbacks=[EbbCallback()])")
    (tmp_path / "train.py").write_text("from ebb.hf import EbbCallback\n" + text)
    assert_sent_once(run_job(sys.executable, tmp_path / "train.py"))


def test_pytorch_lightning_trainer_gets_the_default_callback(run_job, tmp_path):
    needs("pytorch_lightning", "ebb.lightning")
    (tmp_path / "train.py").write_text(LIGHTNING.replace("PACKAGE", "pytorch_lightning"))
    assert_sent_once(run_job(sys.executable, tmp_path / "train.py"))


PLAIN = """
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(torch.randn(9, 4), batch_size=3):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module", params=[HF, LIGHTNING.replace("PACKAGE", "lightning.pytorch")],
                ids=["hf", "lightning"])
def trained(request, tmp_path_factory):
    """A finished job that trained with a trainer first and in a plain loop afterwards."""
    needs("transformers", "accelerate", "lightning")
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(COUNT + request.param + PLAIN)
    run = run_under_ebb(folder, "run", sys.executable, folder / "train.py")
    assert run.status == 0, run.stderr
    run.evaluations = request.param.count("evaluate()")
    return run


def test_trainer_without_a_callback_gets_the_default_callback(trained):
    kinds = [m["kind"] for m in trained.marks()]
    marks = trained.marks()[:kinds.index("end") + 1]
    assert [m["step"] for m in marks if m["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in marks if m["kind"] == "epoch"] == [3, 6]
    assert [m["step"] for m in marks if m["kind"] in ("begin", "end")] == [0, 6]
    assert next(m for m in marks if m["kind"] == "begin")["steps_per_epoch"] == 3
    assert len({m["pid"] for m in marks}) == 1
    assert len(trained.marks("eval")) == trained.evaluations


def test_marks_are_sent_for_a_plain_loop_after_a_trainer(trained):
    assert [m["step"] for m in trained.marks("step")] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [m["step"] for m in trained.marks("begin")] == [0, 6]
    assert [m["step"] for m in trained.marks("epoch")] == [3, 6, 9]
    assert [m["step"] for m in trained.marks("end")] == [6, 9]
    assert json.loads(trained.stdout.splitlines()[-1]) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_lightning_imported_by_ebb_gets_the_default_callback(run_job, tmp_path):
    needs("lightning")
    text = "import ebb.lightning\n" + LIGHTNING.replace("PACKAGE", "lightning.pytorch")
    (tmp_path / "train.py").write_text(text)
    run = run_job(sys.executable, tmp_path / "train.py")
    assert_sent_once(run)
    assert run.marks("begin")[0]["max_steps"] == 6


# Counts how often the end of a step is handled, under either name of the package.
COUNT = """
import atexit, importlib, json, sys
import torch
package = "_ebb" if "_ebb" in sys.modules else "ebb"
control = importlib.import_module(package + "._control")
looks, look = [], control._at_step_end

def count(n):
    looks.append(n)
    look(n)

control._at_step_end = count
atexit.register(lambda: print(json.dumps(looks)))
"""


@pytest.mark.parametrize("text", [HF, LIGHTNING.replace("PACKAGE", "lightning.pytorch")],
                         ids=["hf", "lightning"])
def test_trainer_step_is_counted_once_if_a_user_file_is_named_ebb(run_job, tmp_path, text):
    needs("transformers", "accelerate", "lightning")
    (tmp_path / "ebb.py").write_text("")
    (tmp_path / "train.py").write_text(COUNT + text)
    run = run_job(sys.executable, tmp_path / "train.py")
    assert run.status == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in run.marks("step")] == [1, 2, 3, 4, 5, 6]


def test_trainer_step_is_counted_once_without_the_shim(run_job, tmp_path):
    needs("transformers", "accelerate")
    text = HF.replace("eval_dataset=Data())", "eval_dataset=Data(), callbacks=[EbbCallback()])")
    (tmp_path / "train.py").write_text("from ebb.hf import EbbCallback\n" + COUNT + text)
    run = run_job(sys.executable, tmp_path / "train.py", options=["--no-shim"],
                  env={"PYTHONPATH": PACKAGE})
    assert run.status == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [1, 2, 3, 4, 5, 6]


def test_trainer_sends_no_marks_if_shim_and_callback_are_missing(run_job, tmp_path):
    needs("transformers", "accelerate")
    (tmp_path / "train.py").write_text(HF)
    run = run_job(sys.executable, tmp_path / "train.py", options=["--no-shim"])
    assert run.status == 0, run.stderr
    assert run.marks() == []
