"""Tests the marks that ebb.hf.EbbCallback sends, and how it handles requests."""

import copy
import os
import pickle
import types

import pytest

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="tests of the Hugging Face callback")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from trainers import Recorder, hf_trainer, our_calls  # noqa: E402

from ebb import _wire, hf  # noqa: E402


@pytest.fixture
def wire():
    _wire.reset(Recorder)
    yield _wire.wire()
    _wire.reset()


# ---- steps and epochs ----


@pytest.mark.parametrize(
    "examples, batch, accumulate, epochs, per_epoch",
    [
        (10, 2, 1, 2, 5),
        (11, 2, 1, 2, 6),  # with 11 examples in batches of 2, the last batch is not full
        (10, 2, 2, 3, 3),  # the last step accumulates one micro-batch instead of two
        (11, 2, 4, 2, 2),
        (3, 2, 8, 2, 1),  # an epoch has fewer micro-batches than one accumulation requires
    ],
)
def test_steps_per_epoch_and_epoch_boundaries_are_exact(
    wire, tmp_path, examples, batch, accumulate, epochs, per_epoch
):
    hf_trainer(
        tmp_path,
        examples,
        [hf.EbbCallback()],
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate,
        num_train_epochs=epochs,
    ).train()
    (begin,) = wire.of("begin")
    assert begin["STEP"] == "0"
    assert begin["STEPS_PER_EPOCH"] == str(per_epoch)
    assert begin["MAX_STEPS"] == str(per_epoch * epochs)
    assert begin["EFFECTIVE_BATCH"] == str(batch * accumulate)
    assert begin["EXAMPLES"] == str(examples)
    assert wire.steps() == list(range(1, per_epoch * epochs + 1))
    assert wire.steps("epoch") == [per_epoch * n for n in range(1, epochs + 1)]
    assert [float(m["EPOCH"]) for m in wire.of("epoch")] == list(range(1, epochs + 1))
    batches = -(-examples // batch)
    assert len(wire.of("substep")) == epochs * (batches - per_epoch)
    assert wire.steps("end") == [per_epoch * epochs]


def test_all_short_trainer_steps_are_included_in_batched_marks(wire, tmp_path):
    wire.hold_back()
    hf_trainer(tmp_path, 40, [hf.EbbCallback(log_every=0)], num_train_epochs=2).train()
    found = [(int(m["STEP"]), m.get("STEPS")) for m in wire.of("step")]
    assert found == [(1, None), (19, "18"), (20, None), (39, "19"), (40, None)]
    assert [m["EPOCH"] for m in wire.of("step")] == ["0.05", "0.95", "1.0", "1.95", "2.0"]


@pytest.fixture
def held(wire):
    """Returns the callback, state and control of a trainer whose last step is held back."""
    wire.hold_back()
    args = types.SimpleNamespace(process_index=0, world_size=1, output_dir="out")
    state = types.SimpleNamespace(global_step=0, max_steps=100, epoch=0.0)
    control = types.SimpleNamespace(should_save=False, should_training_stop=False)
    callback = hf.EbbCallback(log_every=0)

    def step():
        state.global_step += 1
        state.epoch += 0.001
        callback.on_step_end(args, state, control)

    step()
    step()
    return types.SimpleNamespace(step=step, state=state, control=control)


def test_short_trainer_step_takes_the_fast_path(held):
    assert our_calls(held.step) == ["on_step_end", "wire", "hold"]


def test_checkpoint_request_after_short_step_is_handled_at_next_step(held, wire):
    wire.waiting.append(_wire.Request("CHECKPOINT", "7"))
    held.step()
    assert held.control.should_save
    held.control.should_save = False  # The trainer resets should_save after saving.
    held.step()
    assert held.control.should_save  # The request stays open because the trainer has not saved yet.


def test_last_trainer_step_is_sent_immediately_even_if_it_is_short(held, wire):
    held.state.max_steps = 3
    held.step()
    assert wire.of("step")[-1]["STEP"] == "3"


def test_no_epoch_mark_is_sent_if_max_steps_ends_the_epoch_early(wire, tmp_path):
    hf_trainer(tmp_path, 10, [hf.EbbCallback()], max_steps=8).train()
    (begin,) = wire.of("begin")
    assert (begin["STEPS_PER_EPOCH"], begin["MAX_STEPS"]) == ("5", "8")
    assert wire.steps() == list(range(1, 9))
    assert wire.steps("epoch") == [5]


def test_steps_per_epoch_are_not_sent_if_dataset_has_no_length(wire, tmp_path):
    import torch

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            for i in range(6):
                yield {"x": torch.ones(8), "labels": torch.ones(1)}

    trainer = hf_trainer(tmp_path, 2, [hf.EbbCallback()], max_steps=5)
    trainer.train_dataset = Stream()
    trainer.train()
    (begin,) = wire.of("begin")
    assert begin["MAX_STEPS"] == "5"
    assert "STEPS_PER_EPOCH" not in begin and "EXAMPLES" not in begin
    assert wire.steps() == [1, 2, 3, 4, 5]
    assert wire.steps("epoch") == [3]


def test_marks_and_phases_are_sent_for_evaluations_and_saves(wire, tmp_path):
    hf_trainer(
        tmp_path,
        8,
        [hf.EbbCallback()],
        eval_examples=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
    ).train()
    assert wire.steps("eval") == [2, 4]
    assert wire.steps("save") == [2, 4]
    assert [m["PATH"] for m in wire.of("save")] == [
        str(tmp_path / "checkpoint-2"),
        str(tmp_path / "checkpoint-4"),
    ]
    sent = [(m.get("NAME"), m.get("STATE")) for m in wire.of("phase", "eval", "save")]
    round_ = [("eval", "begin"), ("eval", "end"), (None, None)]
    round_ += [("save", "begin"), ("save", "end"), (None, None)]
    assert sent == round_ * 2


def test_second_training_sends_a_begin_mark_and_starts_at_step_one(wire, tmp_path):
    trainer = hf_trainer(tmp_path, 6, [hf.EbbCallback()])
    trainer.train()
    trainer.train()
    assert wire.steps() == [1, 2, 3, 1, 2, 3]
    assert wire.steps("begin") == [0, 0]


def test_checkpoint_request_after_failed_training_is_refused(wire, tmp_path):
    from transformers import TrainerCallback

    class Trouble(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                raise RuntimeError("the job's own trouble")

    wire.when = {("step", "2"): [("CHECKPOINT", "1")]}
    with pytest.raises(RuntimeError, match="own trouble"):
        hf_trainer(tmp_path, 8, [hf.EbbCallback(), Trouble()]).train()
    assert wire.answers() == [("1", "failed")]
    assert wire.of("hello")[-1]["ROLE"] == "worker"


# ---- one callback, added by the script or by default ----


def test_callback_added_by_the_script_replaces_the_default_callback(wire, tmp_path):
    explicit = hf.EbbCallback()
    trainer = hf_trainer(tmp_path, 4, [hf._DefaultCallback(), explicit])
    trainer.train()
    assert hf._callbacks(trainer) == [explicit]
    assert wire.steps() == [1, 2]


def test_default_callback_does_not_write_memory_to_the_trainer_logs(
    wire, tmp_path, monkeypatch
):
    from transformers import trainer as module

    monkeypatch.setattr(module, "DEFAULT_CALLBACKS", list(module.DEFAULT_CALLBACKS))
    monkeypatch.setattr(hf, "_is_default", False)
    hf.install(default=True)
    hf.install(default=True)
    trainer = hf_trainer(tmp_path, 4, logging_strategy="steps", logging_steps=1)
    assert len(hf._callbacks(trainer)) == 1
    trainer.train()
    assert wire.steps() == [1, 2]
    assert not any(k.startswith("memory") for log in trainer.state.log_history for k in log)


def test_callback_can_be_copied_and_pickled_after_training(wire, tmp_path):
    callback = hf.EbbCallback(log_every=5, resume=False)
    hf_trainer(tmp_path, 4, [callback]).train()
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert (other.log_every, other.resume) == (5, False)


# ---- memory in the logs ----


def test_memory_is_added_to_each_log_entry_of_the_trainer(wire, tmp_path):
    seen = []
    from transformers import TrainerCallback

    # Like TensorBoard's callback, this callback is called before those of the user.
    class Writer(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    trainer = hf_trainer(
        tmp_path, 8, [Writer(), hf.EbbCallback()], logging_strategy="steps", logging_steps=2
    )
    trainer.train()
    losses = [log for log in seen if "loss" in log]
    assert len(losses) == 2
    for log in losses:
        assert 1 < log["memory_rss_mib"] <= log["memory_rss_peak_mib"]
    assert [h["step"] for h in trainer.state.log_history if "memory_rss_mib" in h] == [2, 4, 4]


def test_logging_memory_every_n_steps_does_not_change_the_loss_logs(wire, tmp_path):
    def run(name, *callbacks):
        trainer = hf_trainer(
            tmp_path / name, 12, callbacks, logging_strategy="steps", logging_steps=3
        )
        trainer.train()
        return trainer.state.log_history

    plain, logged = run("a"), run("b", hf.EbbCallback(log_every=2))
    assert [(h["step"], h["loss"]) for h in logged if "loss" in h] == [
        (h["step"], h["loss"]) for h in plain if "loss" in h
    ]
    with_memory = [h["step"] for h in logged if "memory_rss_mib" in h and "train_loss" not in h]
    assert with_memory == [2, 3, 4, 6]


# ---- requests ----


def test_checkpoint_request_is_served_even_if_the_trainer_never_saves(
    wire, tmp_path
):
    wire.when = {("step", "3"): [("CHECKPOINT", "7")]}
    hf_trainer(tmp_path, 12, [hf.EbbCallback()]).train()
    assert wire.answers() == [("7", "started"), ("7", "done")]
    assert wire.of("ack")[-1]["PATH"] == str(tmp_path / "checkpoint-3")
    assert hf._checkpoints.missing(str(tmp_path / "checkpoint-3")) is None
    assert os.listdir(tmp_path) == ["checkpoint-3"]
    assert wire.steps() == [1, 2, 3, 4, 5, 6]


def test_two_checkpoint_requests_are_both_answered(wire, tmp_path):
    wire.when = {
        ("step", "2"): [("CHECKPOINT", "1"), ("CHECKPOINT", "2")],
        ("step", "4"): [("CHECKPOINT", "3")],
    }
    hf_trainer(tmp_path, 12, [hf.EbbCallback()]).train()
    assert [a for a in wire.answers() if a[1] == "done"] == [
        ("1", "done"),
        ("2", "done"),
        ("3", "done"),
    ]


def test_stop_request_makes_the_trainer_save_and_stop_at_same_step(wire, tmp_path):
    wire.when = {("step", "4"): [("STOP", "9")]}
    trainer = hf_trainer(tmp_path, 20, [hf.EbbCallback()])
    trainer.train()
    assert trainer.state.global_step == 4
    assert wire.steps("save") == [4]
    assert wire.answers() == [("9", "done")]
    assert wire.steps("epoch") == []


def test_save_total_limit_also_removes_requested_checkpoints(wire, tmp_path):
    wire.when = {("step", str(n)): [("CHECKPOINT", str(n))] for n in (2, 4, 6)}
    hf_trainer(tmp_path, 16, [hf.EbbCallback()], save_total_limit=2).train()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-4", "checkpoint-6"]


def test_checkpoint_request_is_served_if_only_best_models_are_saved(wire, tmp_path):
    """An evaluation in the same step resets the decision to save, so the request is handled in the
    next step."""
    wire.when = {("step", "4"): [("CHECKPOINT", "1")]}
    trainer = hf_trainer(
        tmp_path,
        20,
        [hf.EbbCallback()],
        eval_examples=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="best",
        metric_for_best_model="loss",
        # With greater_is_better and a falling loss, the first evaluation remains the best.
        greater_is_better=True,
        learning_rate=0.05,
    )
    trainer.train()
    assert ("1", "done") in wire.answers()
    assert 4 not in wire.steps("save") and 5 in wire.steps("save")


def test_failed_save_requested_by_ebb_does_not_end_the_job(wire, tmp_path):
    wire.when = {("step", "2"): [("CHECKPOINT", "1")]}
    trainer = hf_trainer(tmp_path / "out", 12, [hf.EbbCallback()])

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    trainer.save_model = full
    trainer.train()
    assert wire.answers() == [("1", "started"), ("1", "failed")]
    assert wire.steps() == [1, 2, 3, 4, 5, 6]
    assert wire.of("save") == []


def test_error_of_a_save_not_requested_by_ebb_is_not_suppressed(wire, tmp_path):
    wire.when = {("step", "1"): [("CHECKPOINT", "1")]}
    trainer = hf_trainer(tmp_path, 12, [hf.EbbCallback()], save_strategy="steps", save_steps=1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    trainer.save_model = full
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    assert ("1", "failed") in wire.answers()


def test_incomplete_checkpoint_is_not_reported_as_done(wire, tmp_path):
    wire.when = {("step", "2"): [("CHECKPOINT", "1")]}
    trainer = hf_trainer(tmp_path, 8, [hf.EbbCallback()])
    trainer._save_optimizer_and_scheduler = lambda folder: None
    trainer.train()
    assert wire.answers() == [("1", "started"), ("1", "failed")]


def test_checkpoint_requests_are_refused_after_training(wire, tmp_path):
    wire.when = {("end", "4"): [("CHECKPOINT", "5")]}
    hf_trainer(tmp_path, 8, [hf.EbbCallback()]).train()
    assert wire.answers() == [("5", "failed")]
    assert [m["ROLE"] for m in wire.of("hello")] == ["rank", "worker"]


# ---- failures ----


def test_option_save_only_model_logs_a_warning_about_resuming(wire, tmp_path):
    import logging

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log = logging.getLogger("transformers.ebb")
    log.addHandler(handler)
    try:
        hf_trainer(tmp_path, 4, [hf.EbbCallback()], save_only_model=True).train()
    finally:
        log.removeHandler(handler)
    assert len([m for m in wire.of("note") if "save_only_model" in m["TEXT"]]) == 1
    assert len([line for line in lines if "save_only_model" in line]) == 1


def test_removed_socket_does_not_disturb_the_training(wire, tmp_path):
    from transformers import TrainerCallback

    class Cut(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            wire.is_gone = state.global_step >= 3

    trainer = hf_trainer(tmp_path, 12, [Cut(), hf.EbbCallback()])
    trainer.train()
    assert trainer.state.global_step == 6
    assert wire.steps() == [1, 2]


def test_exception_in_an_ebb_hook_does_not_disturb_the_training(wire, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("this should not be seen")

    for name in ("mark", "send", "requests", "listen", "answer"):
        monkeypatch.setattr(wire, name, broken)
    trainer = hf_trainer(
        tmp_path, 8, [hf.EbbCallback()], save_strategy="steps", save_steps=2, eval_examples=2,
        eval_strategy="epoch",
    )
    trainer.train()
    assert trainer.state.global_step == 4
    assert (tmp_path / "checkpoint-4").is_dir()


@pytest.mark.parametrize("verbose", ["0", "1"])
def test_notes_name_the_trainer_methods_that_ebb_cannot_hook(
    wire, monkeypatch, capsys, verbose
):
    from transformers import trainer as module

    class Trainer:
        def train(self):
            return 1

    monkeypatch.setattr(module, "Trainer", Trainer)
    monkeypatch.setenv("EBB_VERBOSE", verbose)
    hf.install()
    assert Trainer.train._is_ebbs
    notes = [m["TEXT"] for m in wire.of("note")]
    assert [n.partition("Trainer.")[2] for n in notes] == [
        "_save_checkpoint, so ebb cannot hook it",
        "_load_from_checkpoint, so ebb cannot hook it",
        "log, so ebb cannot hook it",
    ]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ([f"ebb: {n}" for n in notes] if verbose == "1" else [])


def test_negative_value_of_option_log_every_is_refused():
    with pytest.raises(ValueError, match="-1"):
        hf.EbbCallback(log_every=-1)


def test_training_outside_a_run_sends_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("EBB_SOCKET", raising=False)
    _wire.reset()
    trainer = hf_trainer(tmp_path, 4, [hf.EbbCallback()])
    trainer.train()
    assert trainer.state.global_step == 2
    assert not _wire.wire().is_there
