"""MemoryCleanup: applies common measures against memory growth, and measures whether they help."""

from __future__ import annotations

import ctypes
import gc as collector
import statistics
import sys
import time
from collections import deque
from typing import Any, Callable, Optional

from transformers import TrainerCallback

from . import _memory
from ._wire import wire

_PARTS = ("tokenizer", "image_processor", "feature_extractor", "video_processor")
_NOISE_BYTES = 1 << 20  # changes of resident memory by fewer bytes than this are treated as noise
_NOISE_SHARE = 0.001
# The summary covers only this many of the latest cleanups, so that the list of cleanups does not
# grow.
_NEWEST = 256


def _size(count: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1024:.3g} KiB"


def _clear_processor(processor: Any) -> None:
    """Clears function caches and the caches of a fast tokenizer. The tokenizer keeps its
    vocabulary."""
    things = [processor] + [getattr(processor, p, None) for p in _PARTS]
    for thing in things:
        if thing is None:
            continue
        for name in dir(type(thing)):
            clear = getattr(getattr(type(thing), name, None), "cache_clear", None)
            if callable(clear):
                clear()
        model = getattr(getattr(thing, "backend_tokenizer", None), "model", None)
        for name in ("clear_cache", "_clear_cache"):
            clear = getattr(model, name, None)
            if callable(clear):
                clear()
                break


class _Reading:
    """The memory of the process and of its GPUs at one point in time."""

    __slots__ = ("rss", "cuda")

    def __init__(self) -> None:
        cuda = _memory.cuda_bytes()
        self.rss = _memory.rss_bytes() or 0
        self.cuda = cuda[1] if cuda else 0


class _Cleanup:
    """The memory before and after one cleanup."""

    __slots__ = ("before", "after")

    def __init__(self, before: _Reading, after: _Reading) -> None:
        self.before = before
        self.after = after


class MemoryCleanup(TrainerCallback):
    """Frees memory every N steps, and measures how much was freed and at what cost.

    every_n_steps: steps between two cleanups; 0 disables them.
    gc, gc_passes: collect garbage, gc_passes times.
    empty_cache: return CUDA's unused memory to the device.
    zero_grad: drop gradients that are still held after the step.
    log_history: drop all entries of the trainer's own log except the last.
    processor_caches: clear caches of the tokenizer and of processors.
    trim: have the C library return free memory to the system (malloc_trim).
    on_evaluate: also clean up after each evaluation.
    on_optimizer_step: also clean up at every optimizer step, before gradients are zeroed.
    """

    def __init__(
        self,
        every_n_steps: int = 10,
        gc: bool = True,
        gc_passes: int = 1,
        empty_cache: bool = True,
        zero_grad: bool = True,
        log_history: bool = False,
        processor_caches: bool = False,
        trim: bool = False,
        on_evaluate: bool = True,
        on_optimizer_step: bool = False,
    ) -> None:
        if every_n_steps < 0:
            raise ValueError(f"every_n_steps must be at least 0 (0: never), not {every_n_steps}")
        if gc_passes < 1:
            raise ValueError(f"gc_passes must be at least 1, not {gc_passes}")
        self.every_n_steps = every_n_steps
        self.gc_passes = gc_passes if gc else 0
        self.empty_cache = empty_cache
        self.zero_grad = zero_grad
        self.log_history = log_history
        self.processor_caches = processor_caches
        self.trim = trim
        self.cleans_on_evaluate = on_evaluate
        self.cleans_on_optimizer_step = on_optimizer_step
        self._forget()

    def _forget(self) -> None:
        self._newest: deque[_Cleanup] = deque(maxlen=_NEWEST)
        self._count = self._objects = self._freed = self._freed_cuda = 0
        self._seconds = 0.0
        self._began: Optional[float] = None
        self._ended: Optional[float] = None

    # ---- triggers ----

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._forget()
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.every_n_steps and state.global_step % self.every_n_steps == 0:
            self._clean(state, kwargs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.cleans_on_evaluate:
            self._clean(state, kwargs)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.cleans_on_optimizer_step:
            self._clean(state, kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._ended = time.perf_counter()
        s = self.summary()
        wire().mark(
            "cleanup",
            True,
            name="total",
            step=state.global_step,
            count=s["count"],
            freed_bytes=s["freed_bytes"],
            freed_cuda_bytes=s["freed_cuda_bytes"],
            objects=s["objects"],
            seconds=s["seconds"],
            share=s["share"],
            text=s["verdict"],
        )

    # ---- cleanup ----

    def _clean(self, state: Any, kwargs: dict[str, Any]) -> None:
        before, begun = _Reading(), time.perf_counter()
        if self.zero_grad:
            self._try(lambda: kwargs["optimizer"].zero_grad(set_to_none=True))
        if self.log_history:
            self._try(lambda: state.log_history.__delitem__(slice(None, -1)))
        if self.processor_caches:
            given = kwargs.get("processing_class") or kwargs.get("tokenizer")
            self._try(lambda: _clear_processor(given))
        objects = sum(collector.collect() for _ in range(self.gc_passes))
        if self.empty_cache:
            self._try(self._empty_cache)
        if self.trim:
            self._try(lambda: ctypes.CDLL(None).malloc_trim(0))
        seconds = time.perf_counter() - begun
        c = _Cleanup(before, _Reading())
        freed, freed_cuda = before.rss - c.after.rss, before.cuda - c.after.cuda
        self._newest.append(c)
        self._count += 1
        self._objects += objects
        self._freed += freed
        self._freed_cuda += freed_cuda
        self._seconds += seconds
        wire().mark(
            "cleanup",
            step=state.global_step,
            freed_bytes=freed,
            freed_cuda_bytes=freed_cuda or None,
            objects=objects,
            seconds=round(seconds, 6),
        )

    @staticmethod
    def _try(part: Callable[[], Any]) -> None:
        try:
            part()
        # the library lacks this method, or the method does not work for this model
        except Exception:
            pass

    @staticmethod
    def _empty_cache() -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    # ---- evaluation ----

    def summary(self) -> dict[str, Any]:
        """Returns the memory freed by all cleanups, their cost, and a sentence that says whether
        the cleanups were worth their cost."""
        whole = (self._ended or time.perf_counter()) - self._began if self._began else 0.0
        share = self._seconds / whole if whole > 0 else None
        return {
            "count": self._count,
            "freed_bytes": self._freed,
            "freed_cuda_bytes": self._freed_cuda,
            "objects": self._objects,
            "seconds": round(self._seconds, 6),
            "share": None if share is None else round(share, 6),
            "verdict": self._verdict(share),
        }

    def _verdict(self, share: Optional[float]) -> str:
        done = self._newest
        if not done:
            return "no cleanup has run"
        cost = "" if share is None else f", costs {100 * share:.2g} %"
        words = []
        for what, before, after in (
            ("", [c.before.rss for c in done], [c.after.rss for c in done]),
            (" of CUDA's", [c.before.cuda for c in done], [c.after.cuda for c in done]),
        ):
            freed = statistics.median(b - a for b, a in zip(before, after))
            if freed <= max(_NOISE_BYTES, _NOISE_SHARE * before[-1]):
                continue
            back = [b - a for b, a in zip(before[1:], after)]
            is_back = bool(back) and statistics.median(back) >= 0.9 * freed
            end = " each time"
            if is_back:
                end += ", but the memory is in use again before the next cleanup"
            words.append(f"frees {_size(freed)}{what}{end}")
        return ("; ".join(words) or "no effect") + cost
