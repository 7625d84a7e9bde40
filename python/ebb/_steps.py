"""Detects the steps and passes of a training loop that does not report them.

Sources of steps have priorities. Updates of a model have the highest priority, then `partial_fit`
of scikit-learn (which scalers have too), then progress bars. When a source of higher priority
appears, counting starts again, and from then on only the steps of this source are counted.

An iteration lasts from one step of an optimizer to the next step of the same optimizer, so several
optimizers that each step once are counted as one step. The step is sent once the first of these
optimizers has stepped.

A pass is one traversal of a DataLoader, from its first batch to its end. It is an evaluation if
training has begun, gradients are disabled, and no optimizer stepped in it. It is an epoch if
optimizers stepped in it, with two exceptions: a pass that ends while a larger pass with steps is
unfinished, because it belongs to a small loader that is restarted alongside a large one; and a pass
that contained other epochs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Optional

from . import _process, _wire

_CHECKS_APART_S = 0.1
# after this many iterations without a new optimizer, the tracker assumes that it knows all
# optimizers
_STEPS_TO_SETTLE = 2
# priorities of step sources; all sources not listed here report updates of a model and have the
# highest priority, 0
_PRIORITIES = {"sklearn": 1, "tqdm": 2}


class Pass:
    """One iteration over a DataLoader, from its first batch to its end."""

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
        "missed",
    )

    def __init__(
        self, iterator: Any, length: Optional[int], looks_ahead: bool, epochs_before: int
    ) -> None:
        self.iterator = iterator  # weak reference to the loader's iterator
        self.length = length  # number of batches, if known
        # True if the next batch is fetched before the current one is used
        self.looks_ahead = looks_ahead
        self.fetched = 0
        self.used = 0  # number of batches that were fetched before the last optimizer step
        self.steps = 0
        self.fetched_at_step = 0
        self.gap = 0  # number of batches between the last two optimizer steps
        self.epochs_before = epochs_before
        self.missed = 0  # number of batches fetched before ebb attached

    @property
    def size(self) -> int:
        return max(self.length or 0, self.fetched)

    @property
    def has_leftover(self) -> bool:
        """Returns True if an optimizer step may still follow after the last batch."""
        return self.looks_ahead or self.fetched > self.used

    @property
    def all_steps(self) -> int:
        return self.steps + self.missed // max(1, self.gap)

    def step(self) -> None:
        self.steps += 1
        self.gap = self.fetched - self.fetched_at_step
        self.used = self.fetched_at_step = self.fetched


def _length(loader: Any) -> Optional[int]:
    try:
        return int(len(loader))
    # the loader has no length, or its __len__ raises
    except Exception:
        return None


def _has_gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def _is_distributed() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def _is_worker() -> bool:
    """Returns True if this process is a spawned or forked worker of a loader."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None)
    return ask is not None and ask() is not None


def _rank() -> Optional[int]:
    """Returns the rank reported by torch.distributed, or else the launcher's."""
    if _is_distributed():
        return int(sys.modules["torch.distributed"].get_rank())
    return _wire.rank_of_environment()


def _nobody() -> None:
    """Stands for a weak reference to an object that no longer exists."""


def _steps_before(optimizer: Any) -> int:
    """Returns how many steps OPTIMIZER had made before its last step, according to its state, or 0
    if unknown. An optimizer loaded from a checkpoint continues its count."""
    states = getattr(optimizer, "state", None)
    for state in states.values() if isinstance(states, dict) else ():
        count = state.get("step") if isinstance(state, dict) else None
        return max(0, int(count) - 1) if count is not None else 0
    return 0


class Tracker:
    """Tracks the training loops of this process. The hooks call it, and it sends marks on the
    wire."""

    def __init__(self, at_step: Optional[Callable[[int], None]] = None) -> None:
        self._at_step = at_step
        # True if training may have begun before this tracker existed
        self._is_late = bool(_process.attached)
        self.source = ""  # name of the source whose steps are counted
        self._priority = max(_PRIORITIES.values()) + 1
        # ids of threads inside a call that is counted as one step
        self._inside: set[int] = set()
        self.step = 0
        self.epoch = 0
        self._has_begun = False  # True once the first step has been sent
        self._sent = 0  # number of the last step that the job or a callback sent
        # optimizers that have stepped in this iteration
        self._stepped: "weakref.WeakSet[Any]" = weakref.WeakSet()
        # if a single optimizer made all steps of this iteration and the previous one: that
        # optimizer
        self._only: Callable[[], Any] = _nobody
        self._seen: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._since_new = 0  # number of iterations since a new optimizer appeared
        # True if a batch was fetched after the first step of this iteration
        self._has_fetched = False
        # unfinished passes, by id of their iterator
        self._open: dict[int, Pass] = {}
        # the pass whose batches were all fetched, but whose last optimizer step may still follow
        self._held: Optional[Pass] = None
        # True if an epoch was sent and no batch has been fetched since
        self._has_just_ended = False
        self._looks_ahead = False  # True once an optimizer step came after the end of its pass
        self._sent_length = 0  # the number of steps per epoch that was sent last
        # number of steps in a pass, by the number of batches in the pass
        self._steps_of: dict[int, int] = {}
        self._suffix: Optional[str] = None
        self._tail: Optional[str] = None  # the last lines of most step marks
        # the wire, if the next event can only be a step and not the end of a pass; otherwise None
        self._even: Optional[_wire.Wire] = None
        # until this time, steps sent by the job itself are counted without further checks
        self._check_due = 0.0
        self._pid, self._is_worker = 0, False  # the process for which _is_worker was determined
        # a line added to marks if steps are counted from the start of this process instead of the
        # training
        self._counted = ""

    # ---- sending ----

    def _may_send(self) -> bool:
        w = _wire.wire()
        if not self._has_begun:
            if _is_worker():
                return False
            if w.is_inherited and _is_distributed():
                _wire.reset()  # the process was forked, but is itself a rank of the training
                w = _wire.wire()
        return w.is_there and not w.has_source

    def _ending(self) -> str:
        """Returns the last lines of every mark."""
        if self._suffix is None:
            rank = _rank()
            # ebb ignores marks with BY=hook if the job also sends its own steps
            self._suffix = "\nBY=hook" + ("" if rank is None else f"\nRANK={rank}")
        return self._suffix

    def _send(self, text: str) -> None:
        _wire.wire().send(text + self._ending(), True)

    def _send_step(self, w: _wire.Wire, is_second: bool) -> bool:
        """Sends a step. IS_SECOND is True for the second step of a pass. Returns False if the step
        is held back."""
        if self._tail is None:
            self._tail = self._counted + self._ending()
        length = self._length_line() if is_second else ""
        if not length:
            return w.step(self.step, None, self._tail)
        return w.step(self.step, None, self._counted + length + self._ending(), True)

    def _begin(self) -> None:
        """Sends the first step. Called at the event after that step: a job that sends its own steps
        has sent its first one by then."""
        if self._has_begun or self.step <= self._sent or not self._may_send():
            return
        self._send_begin(self.step - 1)
        _wire.wire().step(self.step, None, self._counted + self._ending(), True)

    def _send_begin(self, step: int) -> None:
        self._has_begun = True
        self._send(f"KIND=versions{_wire.versions_text()}")
        self._send(f"KIND=begin\nSTEP={step}\nSOURCE={self.source}")
        if self._priority:
            _wire.wire().before_source = self.restart

    def restart(self) -> None:
        """Ends the count: the next step is the first of another training run."""
        w = _wire.wire()
        w.before_source = _wire.nothing
        if self._has_begun and w.is_there:
            self._send(f"KIND=end\nSTEP={self.step}")
        self.step = self.epoch = self._sent = self._since_new = self._sent_length = 0
        self._has_begun = self._has_just_ended = False
        self._held = self._even = None
        self._only = _nobody
        self._stepped.clear()
        self._seen.clear()

    def _send_epoch(self) -> None:
        p, self._held = self._held, None
        if p is None or p.steps == 0:
            return
        self.epoch += 1
        self._sent_length = steps = p.all_steps
        if p.length:
            self._steps_of[p.length] = steps
        if self._has_begun and self._may_send():
            self._send(
                f"KIND=epoch\nSTEP={self.step}\nEPOCH={self.epoch}\nSTEPS_PER_EPOCH={steps}"
            )

    def _flush(self) -> None:
        """Sends the marks that were held back. Called when another pass or another training run
        begins."""
        self._begin()
        self._send_epoch()
        self._has_just_ended = False

    # ---- sources ----

    def _admits(self, source: str) -> bool:
        """Returns True if steps of SOURCE are counted."""
        if self._inside and threading.get_ident() in self._inside:
            return False
        priority = _PRIORITIES.get(source, 0)
        if priority < self._priority:
            if self.source:
                self.restart()
            self.source, self._priority = source, priority
        return priority == self._priority

    def enter(self) -> bool:
        """Begins a call that is counted as one step, no matter how many optimizers step inside it.
        Returns False if this thread is already inside such a call."""
        thread = threading.get_ident()
        if thread in self._inside:
            return False
        self._inside.add(thread)
        return True

    def leave(self) -> None:
        self._inside.discard(threading.get_ident())

    def on_count(self, source: str, count: int, seconds: float) -> None:
        """Counts COUNT steps that ended within the last SECONDS, for a source that is not read at
        every step. The first call sends a begin mark instead of steps."""
        if not self._admits(source):
            return
        self.step += count
        w = _wire.wire()
        if w.has_source:
            self._has_begun, self._sent = False, self.step
        elif not self._has_begun:
            if self._may_send():
                self._send_begin(self.step)
        else:
            row = f"\nSTEPS={count}\nSECONDS={seconds:.6f}"
            row = row if 1 < count <= _wire.STEPS_PER_MARK else ""
            w.send_step(f"KIND=step\nSTEP={self.step}{row}{self._ending()}")
        self._run_at_step()

    # ---- optimizers ----

    def _is_new_iteration(self, optimizer: Any) -> bool:
        if optimizer in self._stepped or not self._stepped:
            return True
        # an optimizer whose first step comes this late belongs to another model, so a new iteration
        # begins
        return (
            optimizer not in self._seen
            and self._has_fetched
            and self._since_new >= _STEPS_TO_SETTLE
        )

    def on_step(self, optimizer: Any, source: str = "torch") -> None:
        # the usual case: with a single optimizer, every step is an iteration
        if self._only() is optimizer:
            w = self._even
            if w is not None:
                if self._has_begun:
                    if w.hold(self.step + 1, self._tail):
                        self._count_held()
                        return
                elif (w.trainings or w.is_sent_by_job) and time.monotonic() < self._check_due:
                    self._count_held()
                    self._sent = self.step
                    return
            if not self._has_begun:
                self._begin()
            if self._count():
                self._run_at_step()
            return
        if not self._admits(source):
            return
        if self._is_new_iteration(optimizer):
            self._stepped.clear()
            self._begin()
            if self.step == 0:
                self._count_from(optimizer)
            if self._count():
                self._run_at_step()
            self._only = weakref.ref(optimizer) if optimizer in self._seen else _nobody
        else:
            self._only = _nobody
            for p in list(self._open.values()):
                p.used = p.fetched
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._since_new = 0
        self._stepped.add(optimizer)

    def _run_at_step(self) -> None:
        if self._pid != _wire.pid():
            self._pid, self._is_worker = _wire.pid(), _is_worker()
        if self._at_step is not None and not self._is_worker:
            self._at_step(self.step)

    def _count_from(self, optimizer: Any) -> None:
        self.step = _steps_before(optimizer)
        if self.step == 0 and os.environ.get("EBB_RESUME") == "1":
            self._counted = "\nCOUNTED=1"

    def _count(self) -> bool:
        """Counts a step. Returns False if the step is held back because it followed another step
        too quickly; the caller then skips its work for the end of a step."""
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
        if w.has_source:
            # if the hooks send steps again later, they continue with the next number
            self._has_begun, self._sent = False, self.step
            self._check_due = time.monotonic() + _CHECKS_APART_S
            if self._even is None:
                self._find_even(w)
        if not self._has_begun:
            return True
        is_sent = self._send_step(w, is_second) if w.is_there else True
        if self._held is not None:
            self._send_epoch()
        if not is_sent and self._even is None:
            self._find_even(w)
        return is_sent

    def _count_held(self) -> None:
        self.step += 1
        self._since_new += 1
        self._has_fetched = False
        for p in list(self._open.values()):
            p.steps += 1
            p.used = p.fetched_at_step = p.fetched

    def _find_even(self, w: _wire.Wire) -> None:
        """Determines whether the next event can only be a step. Called after a step that was held
        back or that the job sent itself."""
        is_even = self._held is None and not self._has_just_ended
        for p in list(self._open.values()):
            # before the second step of a pass, the number of steps per epoch is unknown
            is_even = is_even and p.steps >= 2
        self._even = w if is_even else None

    def _length_line(self) -> str:
        """Returns a line with the number of steps per epoch, computed from the number of batches
        between two steps of a pass. Returns "" if it is unknown or already sent."""
        p = None
        for q in list(self._open.values()):
            if q.steps and (p is None or q.size > p.size):
                p = q
        if p is None or p.steps != 2 or not p.length:
            return ""
        steps = self._steps_of.get(p.length) or -(-p.length // max(1, p.gap))
        if steps == self._sent_length:
            return ""
        self._sent_length = steps
        return f"\nSTEPS_PER_EPOCH={steps}"

    # ---- loaders ----

    def on_iter(self, loader: Any, iterator: Any, looks_ahead: bool) -> None:
        self._even = None
        self._flush()
        key, passes = id(iterator), self._open
        known = weakref.ref(iterator, lambda _: passes.pop(key, None))
        looks_ahead = looks_ahead or self._looks_ahead
        passes[key] = Pass(known, _length(loader), looks_ahead, self.epoch)

    def on_batch(self, iterator: Any) -> None:
        self._has_fetched = True
        is_first = not self._has_begun and self.step > self._sent
        if is_first or self._held is not None or self._has_just_ended:
            self._flush()
        p = self._open.get(id(iterator))
        if p is None and self._is_late:
            p = self._adopt(iterator)
        if p is not None:
            p.fetched += 1

    def _adopt(self, iterator: Any) -> Optional[Pass]:
        """Creates the pass of an iterator that was already in use when ebb attached."""
        before = getattr(iterator, "_num_yielded", 0) - 1
        if before < 1:
            return None
        self.on_iter(iterator, iterator, False)
        p = self._open[id(iterator)]
        p.missed = p.fetched = p.used = p.fetched_at_step = before
        return p

    def on_end(self, iterator: Any) -> None:
        p, self._even = self._open.pop(id(iterator), None), None
        self._begin()
        if p is None or p.fetched == 0:
            return
        if p.steps == 0 and not _has_gradients():
            self.on_eval()
            return
        if p.epochs_before != self.epoch or self._is_beside_larger(p):
            return
        self._send_epoch()
        self._held = p
        if not p.has_leftover:
            self._send_epoch()
            self._has_just_ended = True

    def on_eval(self) -> None:
        """Called when an evaluation has ended."""
        if self._has_begun and self._may_send():
            self._send(f"KIND=eval\nSTEP={self.step}")

    def _is_beside_larger(self, p: Pass) -> bool:
        """Returns True if a pass larger than P is unfinished. If P has no steps, every other
        unfinished pass that has fetched a batch counts as larger."""
        if p.steps == 0:
            return any(q.fetched for q in self._open.values())
        return any(q.steps and q.size > p.size for q in self._open.values())

    def close(self) -> None:
        """Sends all marks that are held back. Called at process exit."""
        self._flush()
        if self._has_begun and self._may_send():
            self._send(f"KIND=end\nSTEP={self.step}")
