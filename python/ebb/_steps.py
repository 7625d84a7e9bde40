"""Steps and passes of a training loop that says nothing about itself.

An iteration is what lies between two steps of the same optimizer: several optimizers that step
once each are one step. It is told when the first of them has stepped.

A pass is a DataLoader from its first batch to its end. It is an epoch if optimizers stepped in it,
unless a larger one with steps is still open (then it is a small loader that is begun anew again and
again beside a large one) or it only held others that were epochs. A pass without any step, with
gradients off, once training has begun, is an evaluation.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Callable, Optional

from . import _wire

_STEPS_TO_SETTLE = 2  # the optimizers of a loop are known when so many iterations had no new one


class Pass:
    """One iterator of a DataLoader, from its first batch to its end."""

    __slots__ = (
        "length",
        "looks_ahead",
        "fetched",
        "used",
        "steps",
        "fetched_at_step",
        "gap",
        "epochs_before",
    )

    def __init__(self, length: Optional[int], looks_ahead: bool, epochs_before: int) -> None:
        self.length = length  # in batches
        self.looks_ahead = looks_ahead  # batches are fetched before the one before them is used
        self.fetched = 0
        self.used = 0  # batches that the step of some optimizer has followed
        self.steps = 0
        self.fetched_at_step = 0
        self.gap = 0  # batches between the last two steps
        self.epochs_before = epochs_before

    @property
    def size(self) -> int:
        return max(self.length or 0, self.fetched)

    @property
    def has_leftover(self) -> bool:
        """Is there a batch that no step has followed yet?"""
        return self.looks_ahead or self.fetched > self.used

    def step(self) -> None:
        self.steps += 1
        self.gap = self.fetched - self.fetched_at_step
        self.fetched_at_step = self.fetched


def _length(loader: Any) -> Optional[int]:
    try:
        return int(len(loader))
    except Exception:  # an iterable without a length, or the user's own code
        return None


def _has_gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def _is_distributed() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def _is_worker() -> bool:
    """Is this process one of a loader's, spawned or forked?"""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None)
    return ask is not None and ask() is not None


def _rank() -> Optional[int]:
    """As torch.distributed knows it; else as the launcher said."""
    if _is_distributed():
        return int(sys.modules["torch.distributed"].get_rank())
    return _wire.rank_of_environment()


def _steps_before(optimizer: Any) -> int:
    """How many steps OPTIMIZER had made before its last one, where its state tells: one that was
    loaded from a checkpoint goes on counting."""
    for state in optimizer.state.values():
        count = state.get("step") if isinstance(state, dict) else None
        return max(0, int(count) - 1) if count is not None else 0
    return 0


class Tracker:
    """What happened so far in this process. Fed by the hooks, speaks through the wire."""

    def __init__(self, at_step: Optional[Callable[[int], None]] = None) -> None:
        self._at_step = at_step  # what else is due when a step has ended
        self.step = 0
        self.epoch = 0
        self._has_begun = False  # the first step has been told
        self._told = 0  # the last step that somebody else has told
        self._stepped: "weakref.WeakSet[Any]" = weakref.WeakSet()  # in this iteration
        self._seen: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._since_new = 0  # iterations since an optimizer was seen for the first time
        self._has_fetched = False  # a batch, since the iteration's first step
        self._open: "weakref.WeakKeyDictionary[Any, Pass]" = weakref.WeakKeyDictionary()
        self._held: Optional[Pass] = None  # it has ended, but one more step may belong to it
        self._has_just_ended = False  # an epoch was told, and nothing was fetched since
        self._looks_ahead = False  # learned: steps come after the end of their pass
        self._told_length = 0  # steps of an epoch, as last told
        self._steps_of: dict[int, int] = {}  # batches of a pass -> its steps, as seen
        self._suffix: Optional[str] = None
        self._counted = ""  # says that steps are counted from the start of this process alone

    # ---- speaking ----

    def _may_speak(self) -> bool:
        w = _wire.wire()
        if not self._has_begun:
            if _is_worker():
                return False
            if w.is_inherited and _is_distributed():
                _wire.reset()  # forked, but a member of the training
                w = _wire.wire()
        return w.is_there and not w.has_speaker

    def _send(self, text: str, must_arrive: bool = True) -> None:
        w = _wire.wire()
        if self._suffix is None:
            rank = _rank()
            # BY=hook: left out where the process also tells its steps itself.
            self._suffix = "\nBY=hook" + ("" if rank is None else f"\nRANK={rank}")
        text += self._suffix
        if must_arrive:
            w.send(text, True)
        else:
            w.send_step(text)

    def _begin(self) -> None:
        """Tells the first step, at the next sign of life only: where the job tells its steps
        itself, it has done so by then."""
        if self._has_begun or self.step <= self._told or not self._may_speak():
            return
        self._has_begun = True
        self._send(f"KIND=versions{_wire.versions_text()}")
        self._send(f"KIND=begin\nSTEP={self.step - 1}")
        self._send(f"KIND=step\nSTEP={self.step}{self._counted}")

    def _tell_epoch(self) -> None:
        p, self._held = self._held, None
        if p is None or p.steps == 0:
            return
        self.epoch += 1
        self._told_length = p.steps
        if p.length:
            self._steps_of[p.length] = p.steps
        if self._has_begun and self._may_speak():
            self._send(
                f"KIND=epoch\nSTEP={self.step}\nEPOCH={self.epoch}\nSTEPS_PER_EPOCH={p.steps}"
            )

    def _go_on(self) -> None:
        """Something new begins: what was held back is due."""
        self._begin()
        self._tell_epoch()
        self._has_just_ended = False

    # ---- optimizers ----

    def _is_new_iteration(self, optimizer: Any) -> bool:
        if optimizer in self._stepped or not self._stepped:
            return True
        # another model in the same process, not another optimizer of the same iteration
        return (
            optimizer not in self._seen
            and self._has_fetched
            and self._since_new >= _STEPS_TO_SETTLE
        )

    def on_step(self, optimizer: Any) -> None:
        if self._is_new_iteration(optimizer):
            self._stepped.clear()
            self._begin()
            self._count(optimizer)
            if self._at_step is not None and not _is_worker():
                self._at_step(self.step)
        for p in list(self._open.values()):
            p.used = p.fetched
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._since_new = 0
        self._stepped.add(optimizer)

    def _count(self, optimizer: Any) -> None:
        if self.step == 0:
            self.step = _steps_before(optimizer)
            if self.step == 0 and os.environ.get("EBB_RESUME") == "1":
                self._counted = "\nCOUNTED=1"
        self.step += 1
        self._since_new += 1
        self._has_fetched = False
        for p in list(self._open.values()):
            p.step()
        if self._held is not None:
            self._held.steps += 1
        elif self._has_just_ended:
            self._looks_ahead = True
        if _wire.wire().has_speaker:
            # who begins to speak after that begins anew, with the step that follows
            self._has_begun, self._told = False, self.step
        if not self._has_begun:
            return
        if self._may_speak():
            length = self._length_line()
            self._send(f"KIND=step\nSTEP={self.step}{self._counted}{length}", bool(length))
        self._tell_epoch()

    def _length_line(self) -> str:
        """The steps of an epoch, once two steps of a pass have shown their number of batches."""
        passes = [p for p in self._open.values() if p.steps]
        p = max(passes, key=lambda p: p.size) if passes else None
        if p is None or p.steps != 2 or not p.length:
            return ""
        steps = self._steps_of.get(p.length) or -(-p.length // max(1, p.gap))
        if steps == self._told_length:
            return ""
        self._told_length = steps
        return f"\nSTEPS_PER_EPOCH={steps}"

    # ---- loaders ----

    def on_iter(self, loader: Any, iterator: Any, looks_ahead: bool) -> None:
        self._go_on()
        self._open[iterator] = Pass(_length(loader), looks_ahead or self._looks_ahead, self.epoch)

    def on_batch(self, iterator: Any) -> None:
        self._has_fetched = True
        if not self._has_begun or self._held is not None or self._has_just_ended:
            self._go_on()
        p = self._open.get(iterator)
        if p is not None:
            p.fetched += 1

    def on_end(self, iterator: Any) -> None:
        p = self._open.pop(iterator, None)
        self._begin()
        if p is None or p.fetched == 0:
            return
        if p.steps == 0 and not _has_gradients():
            if self._has_begun and self._may_speak():
                self._send(f"KIND=eval\nSTEP={self.step}")
            return
        if p.epochs_before != self.epoch or self._is_beside_larger(p):
            return
        self._tell_epoch()
        self._held = p
        if not p.has_leftover:
            self._tell_epoch()
            self._has_just_ended = True

    def _is_beside_larger(self, p: Pass) -> bool:
        """Of a pass without steps: beside any other that is in use."""
        if p.steps == 0:
            return any(q.fetched for q in self._open.values())
        return any(q.steps and q.size > p.size for q in self._open.values())

    def close(self) -> None:
        """The process ends."""
        self._go_on()
        if self._has_begun and self._may_speak():
            self._send(f"KIND=end\nSTEP={self.step}")
