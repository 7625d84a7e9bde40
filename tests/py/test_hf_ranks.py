"""Tests that two ranks under torchrun send separate marks, and save and stop at the same step."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torchrun comes with torch")
pytest.importorskip("transformers", reason="tests of the Hugging Face callback")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 300

SCRIPT = """
import json, os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from trainers import Recorder, hf_trainer, leave
from ebb import _agree, _wire, hf

out, when, absent = pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
rank = int(os.environ["RANK"])
_agree.PATIENCE_S = 2.0 if absent else 200.0
_wire.reset(Recorder)
wire = _wire.wire()
for step, what, number in when.get(str(rank), []):
    wire.when.setdefault(("step", str(step)), []).append((what, number))
callbacks = [] if absent == str(rank) else [hf.EbbCallback()]
trainer = hf_trainer(out / "out", 40, callbacks, ddp_backend="gloo")
trainer.train()
(out / f"{rank}.json").write_text(json.dumps([trainer.state.global_step, wire.marks]))
leave()
"""


def torchrun(folder, when, absent=""):
    """Returns the results and marks of both ranks."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    env.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    command += ["--local-addr=127.0.0.1", str(script), str(HERE), str(folder), json.dumps(when)]
    done = subprocess.run(
        [*command, absent], env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{r}.json").read_text()) for r in range(2)]


def of(marks, kind, key="STEP"):
    return [m[key] for m in marks if m["KIND"] == kind]


def test_trainer_ranks_save_and_stop_at_the_same_step(tmp_path):
    when = {"0": [(2, "CHECKPOINT", "1")], "1": [(3, "CHECKPOINT", "2"), (6, "STOP", "3")]}
    sent = torchrun(tmp_path, when)
    saves = [of(marks, "save") for _, marks in sent]
    assert saves[0] == saves[1] == ["3", "4", "7"]
    assert [step for step, _ in sent] == [7, 7]
    for rank, (_, marks) in enumerate(sent):
        (begin,) = [m for m in marks if m["KIND"] == "begin"]
        assert (begin["RANK"], begin["STEPS_PER_EPOCH"]) == (str(rank), "10")
        assert (begin["EFFECTIVE_BATCH"], begin["EXAMPLES"]) == ("4", "40")
        assert of(marks, "step") == [str(n) for n in range(1, 8)]
        assert set(of(marks, "step", "RANK")) == {str(rank)}
    done = [[m["ID"] for m in marks if m.get("STATUS") == "done"] for _, marks in sent]
    assert done == [["1"], ["2", "3"]]


def test_trainer_ranks_report_a_missing_rank_and_continue(tmp_path):
    sent = torchrun(tmp_path, {"0": [(2, "CHECKPOINT", "1")]}, absent="1")
    assert [step for step, _ in sent] == [10, 10]
    answers = [(m["ID"], m["STATUS"]) for m in sent[0][1] if m["KIND"] == "ack"]
    assert answers == [("1", "failed")]
