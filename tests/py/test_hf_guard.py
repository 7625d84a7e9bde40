"""Tests that leaking Hugging Face training is stopped by the guard, restarted, and finishes with
the same result as without the leak."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="tests of the Hugging Face callback")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from safetensors.torch import load_file  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "hf_leak.py"
SHIM = ROOT / "python" / "ebb" / "_shim" / "sitecustomize.py"
EBB = pathlib.Path(os.environ.get("EBB_BINARY", ROOT / "build" / "ebb"))
TIMEOUT_S = 600
MIB = 1 << 20
STEPS, LEAK_MIB, STEP_MS = 90, 4, 100

pytestmark = pytest.mark.skipif(not EBB.exists(), reason=f"{EBB} is not built")


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    inherited = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
    env.update(
        PYTHONPATH=os.pathsep.join([str(ROOT / "python"), *inherited]),
        OMP_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="",
    )
    return env


def call(*command):
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )


def training(out, *more):
    arguments = [sys.executable, EXAMPLE, "--out", out, "--steps", STEPS]
    return [str(a) for a in (*arguments, "--examples", 60, *more)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Returns the weights of undisturbed training without a leak, and its peak memory without file
    pages. The guard does not count file pages, and their number differs between builds of torch."""
    out = tmp_path_factory.mktemp("whole")
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__');"
        "status = dict(line.split(':') for line in open('/proc/self/status'));"
        "print('PEAK', int(status['VmHWM'].split()[0]) - int(status['RssFile'].split()[0]))"
    )
    command = training(out, "--leak-mib", 0, "--step-ms", 0)
    done = call(command[0], "-c", code, *command[1:])
    assert done.returncode == 0, done.stderr[-3000:]
    peak_kib = int(done.stdout.rpartition("PEAK")[2])
    return load_file(out / "final" / "model.safetensors"), peak_kib * 1024


def guarded(tmp_path, whole, *more):
    """Runs the training with enough memory for two thirds of its leak, and returns run.json and
    standard error. The checkpoint is requested at least 15 steps before the job is stopped, which
    is enough time to write the checkpoint. The job runs without a cgroup, so that its memory is
    measured without file pages, like that of WHOLE."""
    limit = whole[1] + STEPS * LEAK_MIB * MIB * 5 // 6
    reserve = STEPS * LEAK_MIB * MIB // 3
    done = call(
        str(EBB), "run", "--limit", str(limit), "--reserve", str(reserve), "--interval", "100ms",
        "--no-cgroup", "--restart", "--run-dir", str(tmp_path / "run"), "--",
        *training(tmp_path / "out", "--leak-mib", LEAK_MIB, "--step-ms", STEP_MS, *more),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((tmp_path / "run" / "run.json").read_text()), done.stderr


def check(tmp_path, whole, facts, stderr):
    segments = facts["segments"]
    assert len(segments) >= 2, stderr[-3000:]
    assert facts["guard"]["checkpoints"], stderr[-3000:]
    for before, after in zip(segments, segments[1:]):
        assert after["first_step"] == before["checkpoint_step"] + 1
    assert segments[-1]["last_step"] == STEPS
    final = load_file(tmp_path / "out" / "final" / "model.safetensors")
    assert final.keys() == whole[0].keys()
    for name, value in whole[0].items():
        assert value.equal(final[name]), name


def test_guard_restart_with_callback_does_not_change_final_weights(tmp_path, whole):
    check(tmp_path, whole, *guarded(tmp_path, whole, "--callback"))


@pytest.mark.skipif(not SHIM.exists(), reason="the shim is not installed")
def test_guard_restart_without_ebb_code_does_not_change_final_weights(tmp_path, whole):
    check(tmp_path, whole, *guarded(tmp_path, whole))


@pytest.mark.skipif(not SHIM.exists(), reason="the shim is not installed")
def test_shim_and_trainer_callback_together_send_every_step_once(tmp_path):
    arguments = ["--steps", 9, "--examples", 16, "--leak-mib", 0, "--out", tmp_path / "out"]
    run = [EBB, "run", "--run-dir", tmp_path / "run", "--", sys.executable, EXAMPLE]
    done = call(*map(str, run + arguments))
    assert done.returncode == 0, done.stderr[-3000:]
    sent = call(str(EBB), "export", str(tmp_path / "run"), "--jsonl").stdout.splitlines()
    marks = [m for m in map(json.loads, sent) if m.get("type") == "mark"]
    by_kind = {k: [m["step"] for m in marks if m["kind"] == k] for k in ("begin", "step", "epoch")}
    assert by_kind == {"begin": [0], "step": list(range(1, 10)), "epoch": [4, 8]}
    (begin,) = [m for m in marks if m["kind"] == "begin"]
    assert (begin["max_steps"], begin["steps_per_epoch"], begin["examples"]) == (9, 4, 16)
