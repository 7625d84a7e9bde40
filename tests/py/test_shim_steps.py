"""Which optimizer steps are one step, and which passes over a loader are epochs."""

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
    """Keeps what would be sent."""

    def __init__(self):
        super().__init__()
        self._is_dead = False
        self.texts = []

    def _deliver(self, text, patience_s):
        self.texts.append(text)
        return True


class Loader:
    """As the hooks see one: its iterator tells the tracker what happens to it."""

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


def told(wire):
    """What was said, short: begin 0, step 1, …"""
    lines = [dict(line.split("=", 1) for line in text.splitlines()) for text in wire.texts]
    return [f"{m['KIND']} {m['STEP']}" for m in lines if m["KIND"] != "versions"]


def values(wire, key):
    return [line.split("=")[1] for text in wire.texts for line in text.splitlines()
            if line.startswith(key + "=")]


def test_a_step_of_one_optimizer_is_a_step(wire, tracker):
    optimizer = Optimizer()
    for _ in range(3):
        tracker.on_step(optimizer)
    assert told(wire) == ["begin 0", "step 1", "step 2", "step 3"]
    assert values(wire, "BY") == ["hook"] * len(wire.texts)  # ebb leaves them out beside own ones


def test_the_beginning_tells_what_a_report_has_to_name(wire, tracker):
    sys.modules["torch"].__version__ = "9.8.7\nKIND=end"
    for _ in range(2):
        tracker.on_step(Optimizer())
    assert values(wire, "TORCH_VERSION") == ["9.8.7 KIND"]
    assert values(wire, "PYTHON_VERSION") == [sys.version.split()[0]]


def test_two_optimizers_that_step_once_each_are_one_step(wire, tracker):
    critic, actor = Optimizer(), Optimizer()
    for _ in Loader(tracker, 4):
        tracker.on_step(critic)
        tracker.on_step(actor)
    assert told(wire) == ["begin 0", "step 1", "step 2", "step 3", "step 4", "epoch 4"]


def test_of_optimizers_with_different_paces_the_fastest_counts(wire, tracker):
    critic, generator = Optimizer(), Optimizer()
    for i, _ in enumerate(Loader(tracker, 10)):
        tracker.on_step(critic)
        if i % 5 == 4:
            tracker.on_step(generator)
    assert told(wire)[-2:] == ["step 10", "epoch 10"]


def test_one_optimizer_for_each_parameter_is_one_step(wire, tracker):
    many = [Optimizer() for _ in range(50)]
    for _ in range(2):
        for optimizer in many:
            tracker.on_step(optimizer)
    assert told(wire) == ["begin 0", "step 1", "step 2"]


def test_two_optimizers_with_a_batch_each_are_one_step(wire, tracker):
    critic, generator = Optimizer(), Optimizer()
    batches = iter(Loader(tracker, 8))
    for _ in range(4):
        next(batches)
        tracker.on_step(critic)
        next(batches)
        tracker.on_step(generator)
    assert next(batches, None) is None
    assert told(wire)[-2:] == ["step 4", "epoch 4"]


def test_a_second_model_after_the_first_loses_no_step(wire, tracker):
    first = Optimizer()  # kept alive: only the batch in between tells
    for optimizer in (first, Optimizer(), Optimizer()):
        for _ in Loader(tracker, 5):
            tracker.on_step(optimizer)
    assert told(wire)[-2:] == ["step 15", "epoch 15"]
    assert values(wire, "EPOCH") == ["1", "2", "3"]


def test_accumulated_gradients_count_as_the_optimizer_steps(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            if i % 4 == 0 or i == 10:
                tracker.on_step(optimizer)
    assert told(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5",
                          "step 6", "epoch 6"]
    assert set(values(wire, "STEPS_PER_EPOCH")) == {"3"}


def test_a_step_for_the_rest_behind_the_loop_belongs_to_the_epoch(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            if i % 4 == 0:
                tracker.on_step(optimizer)
        tracker.on_step(optimizer)
    assert told(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5",
                          "step 6", "epoch 6"]


def test_gradients_that_are_carried_over_leave_the_boundary_where_the_pass_ended(wire, tracker):
    optimizer, count = Optimizer(), 0
    for _ in range(2):
        for _ in Loader(tracker, 5):
            count += 1
            if count % 2 == 0:
                tracker.on_step(optimizer)
    tracker.close()
    assert told(wire) == ["begin 0", "step 1", "step 2", "epoch 2", "step 3", "step 4", "step 5",
                          "epoch 5", "end 5"]
    assert values(wire, "STEPS_PER_EPOCH") == ["3", "2", "3"]  # a guess, and what was seen


def ahead(loader):
    """As accelerate does: the end is known before the last batch is used."""
    batches = iter(loader)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_loader_that_is_read_ahead_ends_with_the_step_of_its_last_batch(wire, tracker, length):
    optimizer = Optimizer()
    for _ in range(2):
        for _ in ahead(Loader(tracker, length, looks_ahead=True)):
            tracker.on_step(optimizer)
    tracker.close()
    boundaries = [line for line in told(wire) if line.startswith("epoch")]
    assert boundaries == [f"epoch {length}", f"epoch {2 * length}"]
    assert values(wire, "STEPS_PER_EPOCH")[-1] == str(length)


def test_that_batches_are_read_ahead_is_learned(wire, tracker):
    optimizer = Optimizer()
    for _ in range(3):
        for _ in ahead(Loader(tracker, 4)):
            tracker.on_step(optimizer)
    tracker.close()
    boundaries = [line for line in told(wire) if line.startswith("epoch")]
    assert boundaries[1:] == ["epoch 8", "epoch 12"]


def test_an_evaluation_is_no_epoch(wire, tracker, no_gradients):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 4), 1):
            tracker.on_step(optimizer)
            if i == 2:
                no_gradients()
                assert len(list(Loader(tracker, 9))) == 9
                no_gradients(False)
    assert told(wire) == ["begin 0", "step 1", "step 2", "eval 2", "step 3", "step 4", "epoch 4",
                          "step 5", "step 6", "eval 6", "step 7", "step 8", "epoch 8"]


def test_an_evaluation_with_gradients_on_is_nothing_at_all(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 3):
        assert len(list(Loader(tracker, 9))) == 9  # between a batch and its step
        tracker.on_step(optimizer)
    assert len(list(Loader(tracker, 9))) == 9
    tracker.close()
    assert told(wire) == ["begin 0", "step 1", "step 2", "step 3", "epoch 3", "end 3"]


def test_a_job_that_only_evaluates_says_nothing(wire, tracker, no_gradients):
    no_gradients()
    assert len(list(Loader(tracker, 9))) == 9
    tracker.close()
    assert told(wire) == []


def test_a_small_loader_beside_a_large_one_makes_no_epochs(wire, tracker):
    optimizer = Optimizer()
    small, batches = Loader(tracker, 3), None
    for _ in Loader(tracker, 10):
        if batches is None or next(batches, None) is None:
            batches = iter(small)
            next(batches)
        tracker.on_step(optimizer)
    assert [line for line in told(wire) if line.startswith("epoch")] == ["epoch 10"]


def test_a_loader_of_tasks_around_the_others_makes_no_epochs(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 2):
        for _ in Loader(tracker, 5):
            tracker.on_step(optimizer)
    assert [line for line in told(wire) if line.startswith("epoch")] == ["epoch 5", "epoch 10"]


def test_a_pass_that_is_broken_off_is_no_epoch(wire, tracker):
    optimizer = Optimizer()
    for _ in range(2):
        for i, _ in enumerate(Loader(tracker, 10), 1):
            tracker.on_step(optimizer)
            if i == 3:
                break
    tracker.close()
    assert told(wire)[-2:] == ["step 6", "end 6"]
    assert values(wire, "STEPS_PER_EPOCH") == ["10"]


def test_a_loader_without_a_length_is_known_after_its_first_pass(wire, tracker):
    optimizer = Optimizer()
    for _ in Loader(tracker, 6, has_length=False):
        tracker.on_step(optimizer)
    assert told(wire)[-1] == "epoch 6"
    assert values(wire, "STEPS_PER_EPOCH") == ["6"]


def test_steps_of_an_epoch_are_told_with_the_second_step(wire, tracker):
    optimizer = Optimizer()
    for i, _ in enumerate(Loader(tracker, 7), 1):
        tracker.on_step(optimizer)
        if i == 2:
            break
    assert wire.texts[-1] == "KIND=step\nSTEP=2\nSTEPS_PER_EPOCH=7\nBY=hook"


def test_a_loaded_optimizer_goes_on_counting(wire, tracker, monkeypatch):
    monkeypatch.setenv("EBB_RESUME", "1")
    optimizer = Optimizer({"parameter": {"step": 101.0}})
    for _ in range(2):
        tracker.on_step(optimizer)
    assert told(wire) == ["begin 100", "step 101", "step 102"]
    assert values(wire, "COUNTED") == []


def test_a_restarted_job_whose_optimizer_does_not_count_says_so(wire, tracker, monkeypatch):
    monkeypatch.setenv("EBB_RESUME", "1")
    optimizer = Optimizer({"parameter": {"momentum_buffer": None}})
    for _ in range(2):
        tracker.on_step(optimizer)
    assert wire.texts[2:] == [f"KIND=step\nSTEP={n}\nCOUNTED=1\nBY=hook" for n in (1, 2)]


def test_a_job_that_tells_its_steps_is_not_told_by_us(wire, tracker):
    optimizer = Optimizer()
    for n, _ in enumerate(Loader(tracker, 3), 1):
        tracker.on_step(optimizer)
        ebb.mark("step", step=n + 1000)
    tracker.close()
    assert told(wire) == ["step 1001", "step 1002", "step 1003"]


def test_a_loop_after_a_training_that_was_told_is_told_from_there_on(wire, tracker):
    optimizer = Optimizer()
    training = Optimizer()  # anything that a weak reference may point at
    wire.begin_training(training)
    for _ in Loader(tracker, 3, looks_ahead=True):
        tracker.on_step(optimizer)
    wire.end_training(training)
    another = Optimizer()
    for _ in Loader(tracker, 2):
        tracker.on_step(another)
    tracker.close()
    assert told(wire) == ["begin 3", "step 4", "step 5", "epoch 5", "end 5"]


def test_a_training_that_ends_within_a_pass_is_followed_by_the_next_step(wire, tracker):
    optimizer, training = Optimizer(), Optimizer()
    wire.begin_training(training)
    for n, _ in enumerate(Loader(tracker, 9), 1):
        if n == 7:
            wire.end_training(training)
        tracker.on_step(optimizer)
    tracker.close()
    assert told(wire) == ["begin 6", "step 7", "step 8", "step 9", "epoch 9", "end 9"]


def test_a_training_that_is_gone_tells_no_more(wire):
    training = Optimizer()
    wire.begin_training(training)
    assert wire.has_speaker
    del training
    assert not wire.has_speaker


def test_a_step_that_somebody_else_tells_is_only_counted(wire, monkeypatch):
    monkeypatch.setattr(_steps, "_LOOKS_APART_S", 1e6)
    seen = []
    tracker, optimizer, training = _steps.Tracker(seen.append), Optimizer(), Optimizer()
    wire.begin_training(training)
    for n, _ in enumerate(Loader(tracker, 9), 1):
        if n == 8:
            assert our_calls(tracker.on_step, optimizer) == ["on_step", "_count_held"]
            tracker._look_due = 0.0
        else:
            tracker.on_step(optimizer)
    assert seen[-1] == 9 and 8 not in seen


def test_a_loop_before_and_after_a_training_that_was_told_begins_twice(wire, tracker):
    optimizer, training = Optimizer(), Optimizer()
    for is_told in (False, True, False):
        if is_told:
            wire.begin_training(training)
        for _ in Loader(tracker, 2):
            tracker.on_step(optimizer)
        wire.end_training(training)
    tracker.close()
    first = ["begin 0", "step 1", "step 2", "epoch 2"]
    assert told(wire) == first + ["begin 4", "step 5", "step 6", "epoch 6", "end 6"]


def test_the_rank_is_in_every_mark(wire, tracker, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    optimizer = Optimizer()
    for _ in Loader(tracker, 2):
        tracker.on_step(optimizer)
    tracker.close()
    assert values(wire, "RANK") == ["3"] * len(wire.texts)


def test_what_else_is_due_happens_once_a_step(wire):
    steps = []
    tracker = _steps.Tracker(steps.append)
    one, other = Optimizer(), Optimizer()
    for _ in range(3):
        tracker.on_step(one)
        tracker.on_step(other)
    assert steps == [1, 2, 3]


# ---- fast steps ----


class Unhurried(Listener):
    """One that never takes the short way."""

    def hold(self, n, tail):
        return False


def train_as_drawn(seed, make):
    """What is told of a training with breaks, small loaders and second optimizers by chance."""
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
def test_the_short_way_of_fast_steps_tells_the_same(wire, monkeypatch, seed):
    monkeypatch.setattr(_wire, "_STEPS_APART_S", 1e6)
    assert train_as_drawn(seed, Listener) == train_as_drawn(seed, Unhurried)


def test_fast_steps_of_a_loop_take_the_short_way(wire, tracker, monkeypatch):
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
    assert told(wire)[-2:] == ["epoch 100", "end 100"]
