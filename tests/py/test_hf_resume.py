"""Tests resuming from the last complete checkpoint of the Hugging Face Trainer, and the choice of
that checkpoint."""

import json
import os
import shutil
import time

import pytest

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="tests of the Hugging Face callback")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from trainers import ROOT, Recorder, hf_trainer, weights  # noqa: E402

from ebb import _checkpoints, _wire, hf  # noqa: E402


@pytest.fixture
def wire(monkeypatch):
    for name in ("EBB_RESUME", "EBB_NO_RESUME", "EBB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hf, "_resumed", set())
    _wire.reset(Recorder)
    yield _wire.wire()
    _wire.reset()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns a folder with checkpoints of steps 2, 4 and 6. Their training was interrupted at step
    7 of 10."""
    folder = tmp_path_factory.mktemp("saved")
    trainer = hf_trainer(folder, **ARGUMENTS)

    class Broken(Exception):
        pass

    from transformers import TrainerCallback

    class Break(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 7:
                raise Broken

    trainer.add_callback(Break())
    with pytest.raises(Broken):
        trainer.train()
    return folder


ARGUMENTS = dict(examples=10, num_train_epochs=2, save_strategy="steps", save_steps=2)


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "out")
    return tmp_path / "out"


def resume(wire, folder, monkeypatch, callback=None, train=None, **arguments):
    monkeypatch.setenv("EBB_RESUME", "1")
    trainer = hf_trainer(
        folder, callbacks=[callback or hf.EbbCallback()], **{**ARGUMENTS, **arguments}
    )
    trainer.train(**(train or {}))
    return trainer


def test_restarted_training_resumes_and_ends_with_the_same_weights(
    wire, folder, tmp_path, monkeypatch
):
    whole = hf_trainer(tmp_path / "whole", **ARGUMENTS)
    whole.train()
    trainer = resume(wire, folder, monkeypatch)
    assert wire.steps() == [7, 8, 9, 10]
    (sent,) = wire.of("resume")
    assert (sent["STATE"], sent["STEP"]) == ("checkpoint", "6")
    assert sent["PATH"] == str(folder / "checkpoint-6")
    assert wire.of("begin")[0]["STEP"] == "6"
    assert wire.steps("epoch") == [10]
    for name, value in weights(whole).items():
        assert value.equal(weights(trainer)[name]), name


def test_resume_restores_weights_that_were_renamed(
    wire, tmp_path, monkeypatch
):
    """Renames weights in the same way as transformers 5 does for a ViT."""
    import sys

    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    import hf_leak

    def train(out, *more):
        arguments = ["--out", str(tmp_path / out), "--steps", "9", "--examples", "20"]
        return hf_leak.main([*arguments, "--leak-mib", "0", "--step-ms", "0", "--callback", *more])

    whole = train("whole")
    train("out", "--save-steps", "7")
    shutil.rmtree(tmp_path / "out" / "checkpoint-9")
    monkeypatch.setenv("EBB_RESUME", "1")
    wire.marks.clear()
    resumed = train("out")
    assert wire.steps() == [8, 9]
    for name, value in weights(whole).items():
        assert value.equal(weights(resumed)[name]), name


@pytest.mark.parametrize(
    "harm",
    [
        lambda c: (c / "trainer_state.json").write_text('{"global_step": 6'),
        lambda c: (c / "trainer_state.json").unlink(),
        lambda c: (c / "model.safetensors").unlink(),
        lambda c: os.truncate(c / "model.safetensors", 100),
        lambda c: os.truncate(c / "optimizer.pt", 500),
        lambda c: (c / "scheduler.pt").unlink(),
        lambda c: (c / "rng_state.pth").unlink(),
        lambda c: (c / "checkpoint-is-incomplete.txt").write_text("in progress"),
        lambda c: shutil.rmtree(c) or c.mkdir(),
    ],
    ids=["half-json", "no-json", "no-weights", "half-weights", "half-optimizer", "no-scheduler",
         "no-random", "says-so", "empty"],
)
def test_resume_skips_an_incomplete_checkpoint(wire, folder, monkeypatch, harm):
    harm(folder / "checkpoint-6")
    resume(wire, folder, monkeypatch)
    assert wire.steps()[0] == 5
    (sent,) = wire.of("resume")
    assert sent["STEP"] == "4" and sent["TEXT"].startswith("checkpoint-6 lacks ")


def test_training_starts_from_scratch_without_complete_checkpoint(
    wire, folder, monkeypatch
):
    for c in folder.iterdir():
        (c / "trainer_state.json").unlink()
    resume(wire, folder, monkeypatch)
    assert wire.steps() == list(range(1, 11))
    assert wire.of("resume")[0]["STATE"] == "beginning"


def test_training_starts_from_scratch_without_a_checkpoint_folder(wire, tmp_path, monkeypatch):
    resume(wire, tmp_path / "none", monkeypatch)
    assert wire.steps()[0] == 1
    assert wire.of("resume")[0]["STATE"] == "beginning"


def test_checkpoints_of_an_earlier_run_are_ignored(
    wire, folder, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    run.mkdir()
    now = time.time()
    began = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(now - 100))
    (run / "run.json").write_text(json.dumps({"started": began}))
    # The test sets the times of the checkpoints, because they were created when an earlier test
    # ran.
    for step, age_s in ((2, 0), (4, 0), (6, 500)):
        os.utime(folder / f"checkpoint-{step}" / "trainer_state.json", (now - age_s, now - age_s))
    monkeypatch.setenv("EBB_RUN_DIR", str(run))
    resume(wire, folder, monkeypatch)
    (sent,) = wire.of("resume")
    assert (sent["STEP"], sent["TEXT"]) == ("4", "checkpoint-6 belongs to an earlier run")


def test_job_can_disable_resuming_from_checkpoints(wire, folder, monkeypatch):
    resume(wire, folder, monkeypatch, hf.EbbCallback(resume=False), max_steps=1)
    monkeypatch.setenv("EBB_NO_RESUME", "1")
    resume(wire, folder, monkeypatch, max_steps=1)
    assert wire.steps() == [1, 1]
    assert wire.of("resume") == []


def test_checkpoint_passed_by_the_script_is_resumed(wire, folder, monkeypatch):
    named = {"resume_from_checkpoint": str(folder / "checkpoint-2")}
    resume(wire, folder, monkeypatch, train=named)
    assert wire.steps()[0] == 3


def test_resume_option_set_to_true_uses_the_last_complete_checkpoint(wire, folder, monkeypatch):
    (folder / "checkpoint-6" / "optimizer.pt").unlink()
    resume(wire, folder, monkeypatch, train={"resume_from_checkpoint": True})
    assert wire.steps()[0] == 5


def test_only_the_first_training_in_a_script_resumes(wire, folder, monkeypatch):
    trainer = resume(wire, folder, monkeypatch)
    trainer.train()
    assert wire.steps() == [7, 8, 9, 10] + list(range(1, 11))


def test_job_that_was_not_restarted_does_not_resume(wire, folder):
    trainer = hf_trainer(folder, callbacks=[hf.EbbCallback()], **ARGUMENTS)
    trainer.train()
    assert wire.steps()[0] == 1


def test_checkpoint_without_optimizer_state_is_resumed(
    wire, tmp_path, monkeypatch
):
    first = hf_trainer(tmp_path, save_only_model=True, **ARGUMENTS)
    first.train()
    shutil.rmtree(tmp_path / "checkpoint-10")
    resume(wire, tmp_path, monkeypatch, save_only_model=True)
    assert wire.steps() == [9, 10]


def test_sharded_checkpoint_requires_all_shards(saved, tmp_path):
    c = tmp_path / "checkpoint-6"
    shutil.copytree(saved / "checkpoint-6", c)
    for n in (1, 2):
        shutil.copy(c / "model.safetensors", c / f"model-0000{n}-of-00002.safetensors")
    (c / "model.safetensors").unlink()
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (c / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert _checkpoints.missing(str(c)) is None
    (c / names["b"]).unlink()
    assert _checkpoints.missing(str(c)) == "weights"
    (c / "model.safetensors.index.json").write_text("{}")
    assert _checkpoints.missing(str(c)) == "weights"


def test_checkpoint_requires_random_state_of_every_rank(saved, tmp_path):
    c = tmp_path / "checkpoint-6"
    shutil.copytree(saved / "checkpoint-6", c)
    (c / "rng_state.pth").rename(c / "rng_state_0.pth")
    assert "random" in _checkpoints.missing(str(c), world_size=2)
    assert _checkpoints.missing(str(c), world_size=2, rank=0) is None
    shutil.copy(c / "rng_state_0.pth", c / "rng_state_1.pth")
    assert _checkpoints.missing(str(c), world_size=2) is None


@pytest.mark.parametrize("text", [b"", b"\x00", b"\xff" * 16,
                                  b"\x08\x00\x00\x00\x00\x00\x00\x00null",
                                  b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_checkpoint_with_invalid_safetensors_is_incomplete(tmp_path, text):
    path = tmp_path / "model.safetensors"
    path.write_bytes(text)
    assert not _checkpoints.is_whole_file(str(path))
