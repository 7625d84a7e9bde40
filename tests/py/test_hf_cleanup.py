"""Tests that ebb.hf.MemoryCleanup frees memory and measures the effect of each cleanup."""

import gc

import pytest

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="tests of the Hugging Face callback")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from trainers import Recorder, hf_trainer  # noqa: E402

from ebb import _cleanup, _wire, hf  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def wire():
    _wire.reset(Recorder)
    yield _wire.wire()
    _wire.reset()


@pytest.fixture
def memory(monkeypatch):
    """Makes the package read these values of resident memory, in MiB, one after another."""

    def say(*mib):
        rest = [m * MIB for m in mib]
        monkeypatch.setattr(_cleanup._memory, "rss_bytes", lambda: rest.pop(0))
        monkeypatch.setattr(_cleanup._memory, "cuda_bytes", lambda: None)

    return say


class State:
    global_step = 10


def run(cleanup, times):
    cleanup.on_train_begin(None, State, None)
    for _ in range(times):
        cleanup.on_step_end(None, State, None)
    return cleanup.summary()


def test_cleanup_runs_every_n_steps_and_after_evaluations(wire, tmp_path):
    cleanup = hf.MemoryCleanup(every_n_steps=3)
    hf_trainer(
        tmp_path, 16, [cleanup], eval_examples=2, eval_strategy="steps", eval_steps=4
    ).train()
    single = [m for m in wire.of("cleanup") if "NAME" not in m]
    assert [m["STEP"] for m in single] == ["3", "4", "6", "8"]
    for m in single:
        assert float(m["SECONDS"]) > 0
        int(m["FREED_BYTES"]), int(m["OBJECTS"])
    (total,) = [m for m in wire.of("cleanup") if m.get("NAME") == "total"]
    assert total["COUNT"] == "4"
    seconds = sum(float(m["SECONDS"]) for m in single)
    assert float(total["SECONDS"]) == pytest.approx(seconds, abs=1e-4)
    assert 0 < float(total["SHARE"]) < 1
    assert total["TEXT"] == cleanup.summary()["verdict"]


def test_cleanup_with_all_triggers_off_never_runs(wire, tmp_path):
    cleanup = hf.MemoryCleanup(every_n_steps=0, on_evaluate=False)
    hf_trainer(tmp_path, 8, [cleanup], eval_examples=2, eval_strategy="epoch").train()
    assert cleanup.summary()["count"] == 0
    assert cleanup.summary()["verdict"] == "no cleanup has run"


def test_cleanup_runs_at_every_optimizer_step(wire, tmp_path):
    cleanup = hf.MemoryCleanup(every_n_steps=0, on_optimizer_step=True)
    hf_trainer(tmp_path, 8, [cleanup]).train()
    assert cleanup.summary()["count"] == 4


def test_cleanup_does_not_change_the_trained_weights(wire, tmp_path):
    plain = hf_trainer(tmp_path, 12, gradient_accumulation_steps=2)
    cleaned = hf_trainer(
        tmp_path,
        12,
        [hf.MemoryCleanup(1, gc_passes=2, trim=True, log_history=True, processor_caches=True,
                          on_optimizer_step=True)],
        gradient_accumulation_steps=2,
    )  # fmt: skip
    for trainer in (plain, cleaned):
        from transformers import set_seed

        set_seed(3)
        trainer.train()
    theirs = cleaned.model.state_dict()
    assert all(v.equal(theirs[k]) for k, v in plain.model.state_dict().items())


def test_cleanup_collects_garbage_and_counts_the_objects(wire, tmp_path):
    class Knot:
        def __init__(self):
            self.self = self

    gc.disable()
    try:
        cleanup = hf.MemoryCleanup(every_n_steps=1)
        knots = [Knot() for _ in range(1000)]
        del knots
        assert run(cleanup, 1)["objects"] >= 1000
        without = hf.MemoryCleanup(every_n_steps=1, gc=False)
        assert run(without, 1)["objects"] == 0
    finally:
        gc.enable()


def test_cleanup_shortens_the_log_history_only_if_requested(wire, tmp_path):
    for wanted in (False, True):
        trainer = hf_trainer(
            tmp_path,
            8,
            [hf.MemoryCleanup(every_n_steps=4, log_history=wanted)],
            logging_strategy="steps",
            logging_steps=1,
        )
        trainer.train()
        steps = [h["step"] for h in trainer.state.log_history]
        assert steps == ([3, 4, 4] if wanted else [1, 2, 3, 4, 4])


def test_cleanup_clears_lru_caches_of_a_tokenizer_but_not_its_dicts():
    import functools

    class Tokenizer:
        @functools.lru_cache(maxsize=None)
        def cut(self, text):
            return text.split()

    class Processor:
        def __init__(self):
            self.tokenizer = Tokenizer()
            self.cache = {"<|start|>": 1}

    p = Processor()
    p.tokenizer.cut("a b")
    assert Tokenizer.cut.cache_info().currsize == 1
    _cleanup._clear_processor(p)
    assert Tokenizer.cut.cache_info().currsize == 0
    assert p.cache == {"<|start|>": 1}


# ---- the verdict ----


def test_cleanup_that_frees_no_memory_is_reported_with_its_cost(wire, memory):
    memory(500, 500, 540, 540, 580, 580)
    verdict = run(hf.MemoryCleanup(1), 3)["verdict"]
    assert verdict.startswith("no effect, costs ") and verdict.endswith(" %")


def test_cleanup_reports_freed_memory_that_is_allocated_again(wire, memory):
    memory(500, 400, 500, 400, 500, 400)
    summary = run(hf.MemoryCleanup(1), 3)
    assert summary["freed_bytes"] == 300 * MIB
    assert summary["verdict"].startswith(
        "frees 100 MiB each time, but the memory is in use again before the next cleanup, costs ")


def test_cleanup_reports_freed_memory_that_stays_free(wire, memory):
    memory(500, 400, 410, 310, 320, 220)
    assert run(hf.MemoryCleanup(1), 3)["verdict"].startswith("frees 100 MiB each time, costs ")


def test_memory_is_constant_over_ten_thousand_cleanups(wire, monkeypatch):
    monkeypatch.setattr(_cleanup._memory, "rss_bytes", lambda: 100 * MIB)
    cleanup = hf.MemoryCleanup(1, gc=False, empty_cache=False)
    assert run(cleanup, 10000)["count"] == 10000
    assert len(cleanup._newest) == _cleanup._NEWEST


@pytest.mark.parametrize("wrong", [{"every_n_steps": -1}, {"gc_passes": 0}])
def test_cleanup_callback_refuses_invalid_numbers(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        hf.MemoryCleanup(**wrong)
