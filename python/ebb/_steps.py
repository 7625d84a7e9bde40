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
import time
import weakref
from typing import Any, Callable, Optional

from . import _wire

_LOOKS_APART_S = 0.1
_STEPS_TO_SETTLE = 2  # the optimizers of a loop are known when so many iterations had no new one


class Pass:
    """One iterator of a DataLoader, from its first batch to its end."""

    __slots__ = (
        "iterator",
        "length",
        "looks_ahead",
        "fetched",
        "used",
        "steps",
        "fetched_at_step",
        "gap",
        "epochs_before",
    )

    def __init__(
        self, iterator: Any, length: Optional[int], looks_ahead: bool, epochs_before: int
    ) -> None:
        self.iterator = iterator  # a reference that does not keep it
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
        self.used = self.fetched_at_step = self.fetched


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


def _nobody() -> None:
    """A reference to an optimizer that is none."""


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
        self._only: Callable[[], Any] = _nobody  # the only one that stepped in it, and before
        self._seen: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._since_new = 0  # iterations since an optimizer was seen for the first time
        self._has_fetched = False  # a batch, since the iteration's first step
        self._open: dict[int, Pass] = {}  # by the id of its iterator, while that lives
        self._held: Optional[Pass] = None  # it has ended, but one more step may belong to it
        self._has_just_ended = False  # an epoch was told, and nothing was fetched since
        self._looks_ahead = False  # learned: steps come after the end of their pass
        self._told_length = 0  # steps of an epoch, as last told
        self._steps_of: dict[int, int] = {}  # batches of a pass -> its steps, as seen
        self._suffix: Optional[str] = None
        self._tail: Optional[str] = None  # of most steps
        self._even: Optional[_wire.Wire] = None  # where nothing but the next step is expected
        self._look_due = 0.0  # until then the steps that somebody else tells are only counted
        self._pid, self._is_worker = 0, False  # the process for which the latter is known
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

    def _ending(self) -> str:
        """The lines that every mark ends with."""
        if self._suffix is None:
            rank = _rank()
            # BY=hook: left out where the process also tells its steps itself.
            self._suffix = "\nBY=hook" + ("" if rank is None else f"\nRANK={rank}")
        return self._suffix

    def _send(self, text: str) -> None:
        _wire.wire().send(text + self._ending(), True)

    def _tell_step(self, w: _wire.Wire, is_second: bool) -> bool:
        """IS_SECOND: of a pass. False: it is held back."""
        if self._tail is None:
            self._tail = self._counted + self._ending()
        length = self._length_line() if is_second else ""
        if not length:
            return w.step(self.step, None, self._tail)
        return w.step(self.step, None, self._counted + length + self._ending(), True)

    def _begin(self) -> None:
        """Tells the first step, at the next sign of life only: where the job tells its steps
        itself, it has done so by then."""
        if self._has_begun or self.step <= self._told or not self._may_speak():
            return
        self._has_begun = True
        self._send(f"KIND=versions{_wire.versions_text()}")
        self._send(f"KIND=begin\nSTEP={self.step - 1}")
        _wire.wire().step(self.step, None, self._counted + self._ending(), True)

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
        if self._only() is optimizer:  # most loops have one: nothing is to be found out
            w = self._even
            if w is not None:
                if self._has_begun:
                    if w.hold(self.step + 1, self._tail):
                        self._count_held()
                        return
                elif (w.trainings or w.is_told_by_hand) and time.monotonic() < self._look_due:
                    self._count_held()
                    self._told = self.step
                    return
            if not self._has_begun:
                self._begin()
            if self._count():
                self._look()
            return
        if self._is_new_iteration(optimizer):
            self._stepped.clear()
            self._begin()
            if self.step == 0:
                self._count_from(optimizer)
            if self._count():
                self._look()
            self._only = weakref.ref(optimizer) if optimizer in self._seen else _nobody
        else:
            self._only = _nobody
            for p in list(self._open.values()):
                p.used = p.fetched
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._since_new = 0
        self._stepped.add(optimizer)

    def _look(self) -> None:
        if self._pid != _wire.pid():
            self._pid, self._is_worker = _wire.pid(), _is_worker()
        if self._at_step is not None and not self._is_worker:
            self._at_step(self.step)

    def _count_from(self, optimizer: Any) -> None:
        self.step = _steps_before(optimizer)
        if self.step == 0 and os.environ.get("EBB_RESUME") == "1":
            self._counted = "\nCOUNTED=1"

    def _count(self) -> bool:
        """False: it was too soon after another step for anything that is due at the end of one."""
        self.step += 1
        self._since_new += 1
        self._has_fetched = False
        is_second = False
        for p in list(self._open.values()):
            p.step()
            is_second = is_second or p.steps == 2
        if self._held is not None:
            self._held.steps += 1
        elif self._has_just_ended:
            self._looks_ahead = True
        w = _wire.wire()
        if w.has_speaker:
            # who begins to speak after that begins anew, with the step that follows
            self._has_begun, self._told = False, self.step
            self._look_due = time.monotonic() + _LOOKS_APART_S
            if self._even is None:
                self._find_even(w)
        if not self._has_begun:
            return True
        is_told = self._tell_step(w, is_second) if w.is_there else True
        if self._held is not None:
            self._tell_epoch()
        if not is_told and self._even is None:
            self._find_even(w)
        return is_told

    def _count_held(self) -> None:
        self.step += 1
        self._since_new += 1
        self._has_fetched = False
        for p in list(self._open.values()):
            p.steps += 1
            p.used = p.fetched_at_step = p.fetched

    def _find_even(self, w: _wire.Wire) -> None:
        """A step was held back or told by somebody else: is the next one to be expected, and
        nothing else?"""
        is_even = self._held is None and not self._has_just_ended
        for p in list(self._open.values()):
            is_even = is_even and p.steps >= 2  # until then its length is not told
        self._even = w if is_even else None

    def _length_line(self) -> str:
        """The steps of an epoch, once two steps of a pass have shown their number of batches."""
        p = None
        for q in list(self._open.values()):
            if q.steps and (p is None or q.size > p.size):
                p = q
        if p is None or p.steps != 2 or not p.length:
            return ""
        steps = self._steps_of.get(p.length) or -(-p.length // max(1, p.gap))
        if steps == self._told_length:
            return ""
        self._told_length = steps
        return f"\nSTEPS_PER_EPOCH={steps}"

    # ---- loaders ----

    def on_iter(self, loader: Any, iterator: Any, looks_ahead: bool) -> None:
        self._even = None
        self._go_on()
        key, passes = id(iterator), self._open
        known = weakref.ref(iterator, lambda _: passes.pop(key, None))
        looks_ahead = looks_ahead or self._looks_ahead
        passes[key] = Pass(known, _length(loader), looks_ahead, self.epoch)

    def on_batch(self, iterator: Any) -> None:
        self._has_fetched = True
        is_first = not self._has_begun and self.step > self._told
        if is_first or self._held is not None or self._has_just_ended:
            self._go_on()
        p = self._open.get(id(iterator))
        if p is not None:
            p.fetched += 1

    def on_end(self, iterator: Any) -> None:
        p, self._even = self._open.pop(id(iterator), None), None
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
