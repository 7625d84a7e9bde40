"""Tests ebb.lightning.EbbCallback with `lightning` and with `pytorch_lightning`."""

import copy
import csv
import importlib
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="Lightning needs torch")

from jobs import PATIENCE_S  # noqa: E402
from trainers import Recorder, our_calls  # noqa: E402

from ebb import _wire  # noqa: E402


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def pl(request):
    return pytest.importorskip(request.param, reason="tests of the Lightning callback")


@pytest.fixture
def callback(pl):
    """Returns the module of the callback, imported in the same way as in a script that uses this
    package."""
    return importlib.import_module("ebb.lightning")


@pytest.fixture
def wire(monkeypatch, callback):
    for name in ("EBB_RESUME", "EBB_NO_RESUME", "EBB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(callback, "_resumed", set())
    _wire.reset(Recorder)
    yield _wire.wire()
    _wire.reset()


class Numbers(torch.utils.data.Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return torch.randn(4, generator=torch.Generator().manual_seed(i))


def fit(pl, folder, callbacks, examples=10, validate=False, by_hand=False, fit_with=None,
        **options):
    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = not by_hand
            self.body = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            loss = self.body(batch).square().mean()
            if by_hand:
                for optimizer in self.optimizers():
                    optimizer.zero_grad()
                    self.manual_backward(loss, retain_graph=True)
                    optimizer.step()
                return None
            return loss

        def validation_step(self, batch, _):
            self.log("val_loss", self.body(batch).square().mean())

        def configure_optimizers(self):
            make = [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(1 + by_hand)]
            return make

    def loader(length):
        return torch.utils.data.DataLoader(Numbers(length), batch_size=2)

    pl.seed_everything(5)
    defaults = dict(
        default_root_dir=str(folder),
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer = pl.Trainer(**{**defaults, **options})
    trainer.fit(
        Net(), loader(examples), loader(4) if validate else None, **(fit_with or {})
    )
    return trainer


@pytest.mark.parametrize(
    "examples, accumulate, epochs, per_epoch", [(10, 1, 2, 5), (11, 1, 2, 6), (10, 2, 3, 3)]
)
def test_lightning_steps_per_epoch_and_epoch_boundaries_are_exact(
    pl, callback, wire, tmp_path, examples, accumulate, epochs, per_epoch
):
    fit(
        pl, tmp_path, [callback.EbbCallback()], examples,
        max_epochs=epochs, accumulate_grad_batches=accumulate,
    )  # fmt: skip
    (begin,) = wire.of("begin")
    assert begin["STEPS_PER_EPOCH"] == str(per_epoch)
    assert begin["MAX_STEPS"] == str(per_epoch * epochs)
    assert begin["EFFECTIVE_BATCH"] == str(2 * accumulate)
    assert begin["EXAMPLES"] == str(examples)
    assert wire.steps() == list(range(1, per_epoch * epochs + 1))
    assert wire.steps("epoch") == [per_epoch * n for n in range(1, epochs + 1)]
    assert [m["EPOCH"] for m in wire.of("epoch")] == [str(n) for n in range(1, epochs + 1)]
    assert float(wire.of("step")[-1]["EPOCH"]) == epochs
    batches = -(-examples // 2)
    assert len(wire.of("substep")) == epochs * (batches - per_epoch)
    assert wire.steps("end") == [per_epoch * epochs]


def test_all_short_lightning_steps_are_included_in_batched_marks(pl, callback, wire, tmp_path):
    wire.hold_back()
    fit(pl, tmp_path, [callback.EbbCallback(log_every=0)], 40, max_epochs=2)
    found = [(int(m["STEP"]), m.get("STEPS")) for m in wire.of("step")]
    assert found == [(1, None), (19, "18"), (20, None), (39, "19"), (40, None)]
    assert [m["EPOCH"] for m in wire.of("step")] == ["0.05", "0.95", "1.0", "1.95", "2.0"]


def test_short_lightning_step_takes_the_fast_path(callback, wire):
    class Trainer:
        world_size, global_step, max_steps, current_epoch = 1, 0, 100, 0
        num_training_batches, log_every_n_steps, loggers = 1000, 50, ()

    trainer, hooks = Trainer(), callback.EbbCallback(log_every=0)
    hooks._now(trainer)
    wire.hold_back()

    def step():
        trainer.global_step += 1
        hooks.on_train_batch_end(trainer, None, None, None, trainer.global_step - 1)

    step()
    step()
    assert our_calls(step) == ["on_train_batch_end", "wire", "hold"]
    trainer.max_steps = 4
    wire.waiting.append(_wire.Request("CHECKPOINT", "7"))
    hooks._obey = lambda t, _: t.asked.failed()
    step()
    assert wire.answers() == [("7", "failed")] and wire.steps()[-1] == 4


def test_no_epoch_mark_is_sent_if_max_steps_ends_a_lightning_epoch(pl, callback, wire, tmp_path):
    fit(pl, tmp_path, [callback.EbbCallback()], max_epochs=9, max_steps=8)
    assert wire.of("begin")[0]["MAX_STEPS"] == "8"
    assert wire.steps() == list(range(1, 9))
    assert wire.steps("epoch") == [5]


def test_option_limit_train_batches_shortens_the_reported_epoch(pl, callback, wire, tmp_path):
    fit(pl, tmp_path, [callback.EbbCallback()], max_epochs=2, limit_train_batches=3)
    assert wire.of("begin")[0]["STEPS_PER_EPOCH"] == "3"
    assert wire.steps("epoch") == [3, 6]


def test_lightning_sends_one_mark_per_manually_optimized_batch(
    pl, callback, wire, tmp_path
):
    fit(pl, tmp_path, [callback.EbbCallback()], by_hand=True)
    assert "STEPS_PER_EPOCH" not in wire.of("begin")[0]
    assert wire.steps() == [2, 4, 6, 8, 10]


def test_lightning_sends_marks_for_validations_except_sanity_checks(pl, callback, wire, tmp_path):
    fit(pl, tmp_path, [callback.EbbCallback()], validate=True, max_epochs=2)
    assert wire.steps("eval") == [5, 10]
    states = [m["STATE"] for m in wire.of("phase") if m["NAME"] == "eval"]
    assert states == ["begin", "end"] * 2


def test_marks_for_saves_by_model_checkpoint_contain_the_path(pl, callback, wire, tmp_path):
    saver = importlib.import_module(pl.__name__ + ".callbacks").ModelCheckpoint(
        dirpath=str(tmp_path / "ck"), save_top_k=-1, every_n_train_steps=2
    )
    fit(pl, tmp_path, [callback.EbbCallback(), saver], enable_checkpointing=True)
    assert wire.steps("save")[:2] == [2, 4]
    assert all(os.path.isfile(m["PATH"]) for m in wire.of("save"))
    assert [m["STATE"] for m in wire.of("phase")][:4] == ["begin", "end"] * 2


def test_lightning_saves_a_requested_checkpoint_and_continues(pl, callback, wire, tmp_path):
    wire.when = {("step", "3"): [("CHECKPOINT", "4")]}
    fit(pl, tmp_path, [callback.EbbCallback()])
    assert wire.answers() == [("4", "started"), ("4", "done")]
    path = wire.of("ack")[-1]["PATH"]
    assert torch.load(path, weights_only=False)["global_step"] == 3
    assert wire.steps("save") == [3]
    assert wire.steps() == [1, 2, 3, 4, 5]


def test_only_the_newest_requested_lightning_checkpoints_are_kept(pl, callback, wire, tmp_path):
    wire.when = {("step", str(n)): [("CHECKPOINT", str(n))] for n in (1, 2, 3, 4)}
    fit(pl, tmp_path, [callback.EbbCallback()])
    assert sorted(os.listdir(tmp_path / "ebb-checkpoints")) == ["step-3.ckpt", "step-4.ckpt"]


def test_stop_request_makes_lightning_save_and_stop_at_same_step(pl, callback, wire, tmp_path):
    wire.when = {("step", "4"): [("STOP", "8")]}
    trainer = fit(pl, tmp_path, [callback.EbbCallback()], examples=40)
    assert trainer.global_step == 4
    assert wire.steps("save") == [4]
    assert wire.answers() == [("8", "done")]


def test_failed_lightning_save_is_reported_and_training_continues(pl, callback, wire, tmp_path):
    (tmp_path / "ebb-checkpoints").write_text("a file where the folder should be")
    wire.when = {("step", "2"): [("CHECKPOINT", "1")]}
    fit(pl, tmp_path, [callback.EbbCallback()])
    assert wire.answers() == [("1", "started"), ("1", "failed")]
    assert wire.steps() == [1, 2, 3, 4, 5]


def test_lightning_callback_installs_no_signal_handler(pl, callback, wire, tmp_path):
    seen = []

    class Look(pl.Callback):
        def on_train_batch_end(self, *args):
            seen.append(signal.getsignal(signal.SIGUSR1))

    fit(pl, tmp_path, [callback.EbbCallback(), Look()])
    assert set(seen) == {signal.SIG_DFL}


# ---- memory in the loggers ----


@pytest.mark.parametrize("log_every, expected", [(None, 2), (1, 4), (0, 0)])
def test_memory_is_logged_to_lightning_loggers(pl, callback, wire, tmp_path, log_every, expected):
    loggers = importlib.import_module(pl.__name__ + ".loggers")
    logger = loggers.CSVLogger(str(tmp_path), name="csv")
    fit(
        pl, tmp_path, [callback.EbbCallback(log_every=log_every)], 8,
        logger=logger, log_every_n_steps=2,
    )  # fmt: skip
    path = pathlib.Path(logger.log_dir) / "metrics.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    found = [float(row["memory_rss_mib"]) for row in rows if row.get("memory_rss_mib")]
    assert len(found) == expected
    assert all(mib > 1 for mib in found)


# ---- resuming ----


@pytest.fixture
def saved(pl, callback, wire, tmp_path):
    """Returns a folder with checkpoints of steps 2 and 4. Their training of 10 steps was
    interrupted."""
    wire.when = {("step", str(n)): [("CHECKPOINT", str(n))] for n in (2, 4)}
    fit(pl, tmp_path, [callback.EbbCallback(), _stop_at(pl, 5)], 20)
    wire.marks.clear()
    return tmp_path / "ebb-checkpoints"


def _stop_at(pl, step):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            trainer.should_stop = trainer.global_step >= step

    return Stop()


def test_restarted_lightning_job_resumes_from_last_checkpoint(
    pl, callback, wire, saved, tmp_path, monkeypatch
):
    monkeypatch.setenv("EBB_RESUME", "1")
    trainer = fit(pl, tmp_path, [callback.EbbCallback()], 20)
    assert wire.of("resume")[0]["PATH"] == str(saved / "step-4.ckpt")
    assert wire.steps() == [5, 6, 7, 8, 9, 10]
    assert trainer.global_step == 10


def test_resuming_lightning_at_an_epoch_end_gives_the_same_weights(
    pl, callback, wire, tmp_path, monkeypatch
):
    """In the middle of an epoch, the result depends on whether Lightning can resume the data
    loader."""
    whole = fit(pl, tmp_path / "whole", [], 10, max_epochs=3)
    wire.when = {("step", "5"): [("CHECKPOINT", "5")]}
    fit(pl, tmp_path, [callback.EbbCallback(), _stop_at(pl, 7)], 10, max_epochs=3)
    wire.marks.clear()
    monkeypatch.setenv("EBB_RESUME", "1")
    trainer = fit(pl, tmp_path, [callback.EbbCallback()], 10, max_epochs=3)
    assert wire.steps() == list(range(6, 16))
    theirs = whole.lightning_module.state_dict()
    assert all(v.equal(theirs[k]) for k, v in trainer.lightning_module.state_dict().items())


def test_lightning_resume_skips_an_incomplete_checkpoint(
    pl, callback, wire, saved, tmp_path, monkeypatch
):
    shutil.copy(saved / "step-4.ckpt", saved / "step-9.ckpt")
    os.truncate(saved / "step-9.ckpt", 700)
    monkeypatch.setenv("EBB_RESUME", "1")
    fit(pl, tmp_path, [callback.EbbCallback()], 20)
    (sent,) = wire.of("resume")
    assert sent["PATH"].endswith("step-4.ckpt") and sent["TEXT"] == "step-9.ckpt lacks its end"


def test_lightning_does_not_resume_a_weights_only_checkpoint(
    pl, callback, wire, saved, tmp_path, monkeypatch
):
    weights = torch.load(saved / "step-4.ckpt", weights_only=False)
    torch.save({"state_dict": weights["state_dict"]}, saved / "step-9.ckpt")
    monkeypatch.setenv("EBB_RESUME", "1")
    fit(pl, tmp_path, [callback.EbbCallback()], 20)
    assert wire.of("resume")[0]["TEXT"] == "step-9.ckpt lacks optimizer_states and loops"
    assert wire.steps()[0] == 5


def test_lightning_without_a_checkpoint_starts_from_scratch(
    pl, callback, wire, tmp_path, monkeypatch
):
    monkeypatch.setenv("EBB_RESUME", "1")
    fit(pl, tmp_path, [callback.EbbCallback()])
    assert wire.of("resume")[0]["STATE"] == "beginning"
    assert wire.steps()[0] == 1


def test_lightning_job_can_disable_resuming(
    pl, callback, wire, saved, tmp_path, monkeypatch
):
    monkeypatch.setenv("EBB_RESUME", "1")
    fit(pl, tmp_path, [callback.EbbCallback(resume=False)], 20)
    assert wire.steps()[0] == 1
    wire.marks.clear()
    with_path = {"ckpt_path": str(saved / "step-4.ckpt")}
    fit(pl, tmp_path, [callback.EbbCallback()], 20, fit_with=with_path)
    assert wire.steps()[0] == 5 and wire.of("resume") == []
    monkeypatch.setenv("EBB_NO_RESUME", "1")
    wire.marks.clear()
    fit(pl, tmp_path, [callback.EbbCallback()], 20)
    assert wire.steps()[0] == 1


# ---- two ranks ----

RANKS = """
import importlib, json, os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from trainers import Recorder, leave
from ebb import _agree, _wire
pl = importlib.import_module(sys.argv[3])
from ebb.lightning import EbbCallback
from test_lightning import fit

rank = int(os.environ["RANK"])
_agree.PATIENCE_S = 200.0
_wire.reset(Recorder)
wire = _wire.wire()
wire.when = {("step", "2"): [("CHECKPOINT", "1")], ("step", "5"): [("STOP", "2")]} if rank else {}
folder = pathlib.Path(sys.argv[2])
fit(pl, folder, [EbbCallback()], 40, strategy="ddp", devices=2)
(folder / f"{rank}.json").write_text(json.dumps(wire.marks))
leave()
"""


def test_lightning_ranks_save_and_stop_at_the_same_step(pl, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    env.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    command += ["--local-addr=127.0.0.1", str(script), os.path.dirname(__file__), str(tmp_path)]
    done = subprocess.run(
        [*command, pl.__name__], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    sent = [json.loads((tmp_path / f"{r}.json").read_text()) for r in range(2)]
    for rank, marks in enumerate(sent):
        (begin,) = [m for m in marks if m["KIND"] == "begin"]
        assert (begin["RANK"], begin["STEPS_PER_EPOCH"]) == (str(rank), "10")
        assert begin["EFFECTIVE_BATCH"] == "4"
        assert [m["STEP"] for m in marks if m["KIND"] == "save"] == ["3", "6"]
        assert [m["STEP"] for m in marks if m["KIND"] == "end"] == ["6"]
    acks = [[m["ID"] for m in marks if m.get("STATUS") == "done"] for marks in sent]
    assert acks == [[], ["1", "2"]]


# ---- default callback, and failures ----


def test_lightning_callback_can_be_copied_and_pickled(pl, callback):
    made = callback._class_for((pl.Callback,))(log_every=3, resume=False)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other.log_every, other.resume) == (3, False)
        assert isinstance(other, callback._Hooks)


def test_every_lightning_trainer_gets_the_callback(pl, callback, wire, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_is_default", False)
    callback.install(default=True)
    trainer = fit(pl, tmp_path, [])
    assert len(callback._callbacks(trainer)) == 1
    assert wire.steps() == [1, 2, 3, 4, 5]
    wire.marks.clear()
    fit(pl, tmp_path, [callback.EbbCallback()])
    assert wire.steps() == [1, 2, 3, 4, 5]


def test_exception_in_lightning_hook_does_not_disturb_training(pl, callback, wire, tmp_path,
                                                          monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("this should not be seen")

    for name in ("mark", "send", "requests", "listen", "answer"):
        monkeypatch.setattr(wire, name, broken)
    trainer = fit(pl, tmp_path, [callback.EbbCallback()], validate=True)
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    assert trainer.global_step == 5
    assert (tmp_path / "own.ckpt").is_file()


def test_removed_socket_does_not_disturb_lightning_training(pl, callback, wire, tmp_path):
    class Cut(pl.Callback):
        def on_train_batch_start(self, trainer, *args):
            wire.is_gone = trainer.global_step >= 2

    trainer = fit(pl, tmp_path, [Cut(), callback.EbbCallback()])
    assert trainer.global_step == 5
    assert wire.steps() == [1, 2]
