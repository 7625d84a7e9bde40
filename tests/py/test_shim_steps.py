"""Tests which optimizer steps are counted as one step, and which iterations over a loader as
epochs."""

import random
import sys
import types

import pytest
from trainers import our_calls

import ebb
from ebb import _steps, _wire


class Optimizer:
    def __init__(self, state=None):
        self.state = state or {}


class Listener(_wire.Wire):
    """Records marks instead of sending them."""

    def __init__(self):
        super().__init__()
        self._is_dead = False
        self.texts = []

    def _deliver(self, text, patience_s):
        self.texts.append(text)
        return True


class Loader:
    """A loader in the form that the hooks see; its iterator notifies the tracker."""

    def __init__(self, tracker, length, looks_ahead=False, has_length=True):
        self.tracker, self.length, self.looks_ahead = tracker, length, looks_ahead
        self.has_length = has_length

    def __len__(self):
        if not self.has_length:
            raise TypeError("no length")
        return self.length

    def __iter__(self):
        iterator = LoaderIterator(self)
        self.tracker.on_iter(self, iterator, self.looks_ahead)
        return iterator


class LoaderIterator:
    def __init__(self, loader):
        self.tracker, self.left = loader.tracker, loader.length

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            self.tracker.on_end(self)
            raise StopIteration
        self.left -= 1
        self.tracker.on_batch(self)
        return self.left


@pytest.fixture
def wire(monkeypatch):
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK",
                 "EBB_RESUME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(is_grad_enabled=lambda: True))
    _wire.reset(Listener)
    yield _wire.wire()
    _wire.reset()


@pytest.fixture
def tracker(wire):
    return _steps.Tracker()


@pytest.fixture
def no_gradients(monkeypatch):
    def switch(off=True):
        torch = types.SimpleNamespace(is_grad_enabled=lambda: not off)
        monkeypatch.setitem(sys.modules, "torch", torch)
    return switch


def sent(wire):
    """Returns the marks sent, in a short form such as "begin 0", "step 1"."""
    lines = [dict(line.split("=", 1) for line in text.splitlines()) for text in wire.texts]
    return [f"{m['KIND']} {m['STEP']}" for m in lines if m["KIND"] != "versions"]


def values(wire, key):
    return [line.split("=")[1] for text in wire.texts for line in text.splitlines()
            if line.startswith(key + "=")]


def test_each_step_of_a_single_optimizer_is_counted_as_one_step(wire, tracker):
    optimizer = Optimizer()
    for _ in range(3):
        tracker.on_step(optimizer)
    assert sent(wire) == ["begin 0", "step 1", "step 2", "step 3"]
    # BY=hook makes ebb ignore these marks if the job sends its own.
    assert values(wire, "BY") == ["hook"] * len(wire.texts)


def test_line_break_in_a_package_version_adds_no_line_to_a_mark(wire, tracker):
    sys.modules["torch"].__version__ = "9.8.7\nKIND=end"
    for _ in range(2):
        tracker.on_step(Optimizer())
    assert values(wire, "TORCH_VERSION") == ["9.8.7 KIND"]
    assert values(wire, "PYTHON_VERSION") == [sys.version.split()[0]]


def test_steps_of_two_optimizers_in_a_batch_are_counted_as_one(wire, tracker):
    critic, actor = Optimizer(), Optimizer()
    for _ in Loader(tracker, 4):
        tracker.on_step(critic)
        tracker.on_step(actor)
    assert sent(wire) == ["begin 0", "step 1", "step 2", "step 3", "step 4", "epoch 4"]


def test_only_the_optimizer_with_the_most_steps_is_counted(wire, tracker):
    critic, generator = Optimizer(), Optimizer()
    for i, _ in enumerate(Loader(tracker, 10)):
        tracker.on_step(critic)
        if i % 5 == 4:
            tracker.on_step(generator)
    assert sent(wire)[-2:] == ["step 10", "epoch 10"]


def test_optimizers_stepping_in_turn_count_as_one_step_per_round(wire, tracker):
    many = [Optimizer() for _ in range(50)]
    for _ in range(2):
        for optimizer in many:
            tracker.on_step(optimizer)
    assert sent(wire) == ["begin 0", "step 1", "step 2"]


def test_two_optimizers_on_alternate_batches_make_one_step_per_pair(wire, tracker):
    critic, generator = Optimizer(), Optimizer()
    batches = iter(Loader(tracker, 8))
    for _ in range(4):
        next(batches)
        tracker.on_step(critic)
        next(batches)
        tracker.on_step(generator)
    assert next(batches, None) is None
    assert sent(wire)[-2:] == ["step 4", "epoch 4"]


def test_steps_of_second_model_trained_after_the_first_are_counted(wire, tracker):
    # The first optimizer is kept alive, so that only later batches show that it is no longer used.
    first = Optimizer()
    for optimizer in (first, Optimizer(), Optimizer()):
        for _ in Loader(tracker, 5):
            tracker.on_step(optimizer)
    assert sent(wire)[-2:] == ["step 15", "epoch 15"]
    assert values(wire, "EPOCH") == ["1", "2", "3"]


def test_accumulated_micro_batches_are_counted_as_one_step(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            if i % 4 == 0 or i == 10:
                tracker.on_step(optimizer)
    assert sent(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5",
                          "step 6", "epoch 6"]
    assert set(values(wire, "STEPS_PER_EPOCH")) == {"3"}


def test_optimizer_step_after_the_loop_belongs_to_the_last_epoch(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            if i % 4 == 0:
                tracker.on_step(optimizer)
        tracker.on_step(optimizer)
    assert sent(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5",
                          "step 6", "epoch 6"]


def test_gradients_accumulated_across_epochs_do_not_shift_epoch_ends(wire, tracker):
    optimizer, count = Optimizer(), 0
    for _ in range(2):
        for _ in Loader(tracker, 5):
            count += 1
            if count % 2 == 0:
                tracker.on_step(optimizer)
    tracker.close()
    assert sent(wire) == ["begin 0", "step 1", "step 2", "epoch 2", "step 3", "step 4", "step 5",
                          "epoch 5", "end 5"]
    # The first STEPS_PER_EPOCH is an estimate, the later ones are exact.
    assert values(wire, "STEPS_PER_EPOCH") == ["3", "2", "3"]


def ahead(loader):
    """Fetches one batch ahead, as accelerate does: the loader is exhausted before its last batch is
    used."""
    batches = iter(loader)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


@pytest.mark.parametrize("length", [1, 2, 5])
def test_epoch_with_prefetching_ends_with_the_step_of_its_last_batch(wire, tracker, length):
    optimizer = Optimizer()
    for _ in range(2):
        for _ in ahead(Loader(tracker, length, looks_ahead=True)):
            tracker.on_step(optimizer)
    tracker.close()
    boundaries = [line for line in sent(wire) if line.startswith("epoch")]
    assert boundaries == [f"epoch {length}", f"epoch {2 * length}"]
    assert values(wire, "STEPS_PER_EPOCH")[-1] == str(length)


def test_prefetching_is_detected_and_epoch_ends_are_exact_afterwards(wire, tracker):
    optimizer = Optimizer()
    for _ in range(3):
        for _ in ahead(Loader(tracker, 4)):
            tracker.on_step(optimizer)
    tracker.close()
    boundaries = [line for line in sent(wire) if line.startswith("epoch")]
    assert boundaries[1:] == ["epoch 8", "epoch 12"]


def test_evaluation_loop_without_gradients_is_not_an_epoch(wire, tracker, no_gradients):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 4), 1):
            tracker.on_step(optimizer)
            if i == 2:
                no_gradients()
                assert len(list(Loader(tracker, 9))) == 9
                no_gradients(False)
    assert sent(wire) == ["begin 0", "step 1", "step 2", "eval 2", "step 3", "step 4", "epoch 4",
                          "step 5", "step 6", "eval 6", "step 7", "step 8", "epoch 8"]


def test_evaluation_with_gradients_enabled_sends_no_marks(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 3):
        # The inner loader is exhausted between a batch of the outer loader and the step for that
        # batch.
        assert len(list(Loader(tracker, 9))) == 9
        tracker.on_step(optimizer)
    assert len(list(Loader(tracker, 9))) == 9
    tracker.close()
    assert sent(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "end 3"]


def test_job_that_only_evaluates_sends_no_marks(wire, tracker, no_gradients):
    no_gradients()
    assert len(list(Loader(tracker, 9))) == 9
    tracker.close()
    assert sent(wire) == []


def test_end_of_a_small_loader_in_a_larger_loop_is_not_an_epoch(wire, tracker):
    optimizer = Optimizer()
    small, batches = Loader(tracker, 3), None
    for _ in Loader(tracker, 10):
        if batches is None or next(batches, None) is None:
            batches = iter(small)
            next(batches)
        tracker.on_step(optimizer)
    assert [line for line in sent(wire) if line.startswith("epoch")] == ["epoch 10"]


def test_outer_loop_over_tasks_is_not_counted_as_an_epoch(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 2):
        for _ in Loader(tracker, 5):
            tracker.on_step(optimizer)
    assert [line for line in sent(wire) if line.startswith("epoch")] == ["epoch 5", "epoch 10"]


def test_epoch_ended_by_a_break_is_not_counted(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            tracker.on_step(optimizer)
            if i == 3:
                break
    tracker.close()
    assert sent(wire)[-2:] == ["step 6", "end 6"]
    assert values(wire, "STEPS_PER_EPOCH") == ["10"]


def test_length_of_an_iterable_loader_is_known_after_its_first_epoch(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 6, has_length=False):
        tracker.on_step(optimizer)
    assert sent(wire)[-1] == "epoch 6"
    assert values(wire, "STEPS_PER_EPOCH") == ["6"]


def test_steps_per_epoch_are_sent_with_the_second_step(wire, tracker):
    optimizer = Optimizer()
    for i, _ in enumerate(Loader(tracker, 7), 1):
        tracker.on_step(optimizer)
        if i == 2:
            break
    assert wire.texts[-1] == "KIND=step\nSTEP=2\nSTEPS_PER_EPOCH=7\nBY=hook"


def test_loaded_optimizer_continues_its_step_count(wire, tracker, monkeypatch):
    monkeypatch.setenv("EBB_RESUME", "1")
    optimizer = Optimizer({"parameter": {"step": 101.0}})
    for _ in range(2):
        tracker.on_step(optimizer)
    assert sent(wire) == ["begin 100", "step 101", "step 102"]
    assert values(wire, "COUNTED") == []


def test_steps_counted_from_zero_after_a_restart_are_flagged(wire, tracker, monkeypatch):
    monkeypatch.setenv("EBB_RESUME", "1")
    optimizer = Optimizer({"parameter": {"momentum_buffer": None}})
    for _ in range(2):
        tracker.on_step(optimizer)
    assert wire.texts[2:] == [f"KIND=step\nSTEP={n}\nCOUNTED=1\nBY=hook" for n in (1, 2)]


def test_shim_steps_are_not_sent_after_the_job_sends_steps(wire, tracker):
    optimizer = Optimizer()
    for n, _ in enumerate(Loader(tracker, 3), 1):
        tracker.on_step(optimizer)
        ebb.mark("step", step=n + 1000)
    tracker.close()
    assert sent(wire) == ["step 1001", "step 1002", "step 1003"]


def test_step_count_continues_in_a_plain_loop_after_a_trainer(wire, tracker):
    optimizer = Optimizer()
    training = Optimizer()  # any object that supports weak references
    wire.begin_training(training)
    for _ in Loader(tracker, 3, looks_ahead=True):
        tracker.on_step(optimizer)
    wire.end_training(training)
    another = Optimizer()
    for _ in Loader(tracker, 2):
        tracker.on_step(another)
    tracker.close()
    assert sent(wire) == ["begin 3", "step 4", "step 5", "epoch 5", "end 5"]


def test_loop_continues_step_count_of_a_trainer_that_ended_mid_epoch(wire, tracker):
    optimizer, training = Optimizer(), Optimizer()
    wire.begin_training(training)
    for n, _ in enumerate(Loader(tracker, 9), 1):
        if n == 7:
            wire.end_training(training)
        tracker.on_step(optimizer)
    tracker.close()
    assert sent(wire) == ["begin 6", "step 7", "step 8", "step 9", "epoch 9", "end 9"]


def test_hooks_may_send_steps_after_the_trainer_is_deleted(wire):
    training = Optimizer()
    wire.begin_training(training)
    assert wire.has_source
    del training
    assert not wire.has_source


def test_step_sent_by_a_trainer_is_counted_but_not_sent_again(wire, monkeypatch):
    monkeypatch.setattr(_steps, "_CHECKS_APART_S", 1e6)
    seen = []
    tracker, optimizer, training = _steps.Tracker(seen.append), Optimizer(), Optimizer()
    wire.begin_training(training)
    for n, _ in enumerate(Loader(tracker, 9), 1):
        if n == 8:
            assert our_calls(tracker.on_step, optimizer) == ["on_step", "_count_held"]
            tracker._check_due = 0.0
        else:
            tracker.on_step(optimizer)
    assert seen[-1] == 9 and 8 not in seen


def test_begin_marks_are_sent_for_loops_before_and_after_a_trainer(wire, tracker):
    optimizer, training = Optimizer(), Optimizer()
    for is_sent in (False, True, False):
        if is_sent:
            wire.begin_training(training)
        for _ in Loader(tracker, 2):
            tracker.on_step(optimizer)
        wire.end_training(training)
    tracker.close()
    first = ["begin 0", "step 1", "step 2", "epoch 2"]
    assert sent(wire) == first + ["begin 4", "step 5", "step 6", "epoch 6", "end 6"]


def test_every_mark_sent_by_the_shim_has_the_rank(wire, tracker, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    optimizer = Optimizer()
    for _ in Loader(tracker, 2):
        tracker.on_step(optimizer)
    tracker.close()
    assert values(wire, "RANK") == ["3"] * len(wire.texts)


def test_step_listener_runs_once_for_a_step_of_two_optimizers(wire):
    steps = []
    tracker = _steps.Tracker(steps.append)
    one, other = Optimizer(), Optimizer()
    for _ in range(3):
        tracker.on_step(one)
        tracker.on_step(other)
    assert steps == [1, 2, 3]


# ---- fast steps ----


class Unhurried(Listener):
    """A wire that sends every step immediately and refuses the fast path."""

    def hold(self, n, tail):
        return False


def train_as_drawn(seed, make):
    """Returns the marks of training with random interruptions, small loaders and second
    optimizers."""
    _wire.reset(make)
    w, draw = _wire.wire(), random.Random(seed)
    w.help(lambda: None)
    tracker = _steps.Tracker()
    first, second = Optimizer(), Optimizer()
    for _ in range(draw.randint(1, 5)):
        accumulate, has_second = draw.choice((1, 1, 1, 3)), draw.random() < 0.2
        length, looks_ahead = draw.choice((5, 40, 300)), draw.random() < 0.2
        for left in Loader(tracker, length, looks_ahead, has_length=draw.random() < 0.8):
            if left % accumulate == 0:
                tracker.on_step(first)
            if has_second:
                tracker.on_step(second)
            if draw.random() < 0.01:
                w.mark("save", step=tracker.step)
            if draw.random() < 0.02:
                list(Loader(tracker, 3))
            if draw.random() < 0.01:
                w._step_due = 0.0
            if draw.random() < 0.003:
                break
    tracker.close()
    return [text.partition("\nSECONDS=")[0] for text in w.texts]


@pytest.mark.parametrize("seed", range(40))
def test_shim_fast_path_sends_the_same_marks_as_the_slow_path(wire, monkeypatch, seed):
    monkeypatch.setattr(_wire, "_STEPS_APART_S", 1e6)
    assert train_as_drawn(seed, Listener) == train_as_drawn(seed, Unhurried)


def test_loop_of_short_steps_uses_the_shim_fast_path(wire, tracker, monkeypatch):
    monkeypatch.setattr(_wire, "_STEPS_APART_S", 1e6)
    wire.help(lambda: None)
    optimizer, held = Optimizer(), []
    hold = wire.hold
    wire.hold = lambda n, tail: held.append(hold(n, tail)) or held[-1]
    for _ in Loader(tracker, 100):
        tracker.on_step(optimizer)
    assert tracker.step == 100 and sum(held) > 80
    tracker.close()
    assert values(wire, "STEPS_PER_EPOCH")[-1] == "100"
    assert sent(wire)[-2:] == ["epoch 100", "end 100"]
