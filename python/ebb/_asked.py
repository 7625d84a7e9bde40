"""Carries out ebb's requests in a trainer, on all ranks at the same step, and reports their
progress. Implements the protocol in docs/reference/marks.md for callbacks of frameworks."""

from __future__ import annotations

import os
import sys
from typing import Optional

from . import _control
from ._agree import Agreement
from ._wire import Request, wire


def note(name: str, text: str) -> None:
    """Adds a note to the recording and, if EBB_VERBOSE=1, prints it on standard error."""
    wire().mark("note", True, name=name, text=text)
    if os.environ.get("EBB_VERBOSE") == "1":
        try:
            print(f"ebb: {text}", file=sys.stderr)
        except Exception:  # standard error is closed or missing
            pass


class Asked:
    """The requests that ebb sends to one training run."""

    def __init__(self) -> None:
        self._agreement = Agreement()
        self._saves: list[Request] = []
        self._stops: list[Request] = []
        self._rank: Optional[int] = None
        self.must_save = False  # True if a checkpoint was requested and has not been written yet
        self.must_stop = False

    def begin(self, rank: Optional[int], world_size: int, is_late: bool = False) -> None:
        """Called when training begins; requests are accepted from now on. IS_LATE is True if
        training was already running: several ranks can then no longer agree on a step, so they
        refuse requests."""
        w = wire()
        w.begin_training(self)
        _control.claim()
        self._rank = rank
        if is_late and world_size > 1:
            self._agreement.is_possible = False
        else:
            self._agreement.begin(world_size, w.is_there)
        # requests left over from an earlier training run are refused
        for old in w.requests("CHECKPOINT", "STOP"):
            w.answer(old, "failed")
        w.listen(rank, role="rank" if self._agreement.is_possible else "worker")

    def poll(self) -> bool:
        """Called at the end of every step, on every rank. Returns True if a request must be carried
        out after this step."""
        w = wire()
        found = w.requests("CHECKPOINT", "STOP")
        saves = [r for r in found if r.what == "CHECKPOINT"]
        stops = [r for r in found if r.what == "STOP"]
        if not self._agreement.is_possible:
            for r in saves + stops:
                w.answer(r, "failed")
            return False
        self._saves += saves
        self._stops += stops
        save, stop = self._agreement.exchange(bool(saves), bool(stops))
        self.must_stop = self.must_stop or stop
        self.must_save = self.must_save or save or stop
        return self.must_save or self.must_stop

    @property
    def is_idle(self) -> bool:
        """Returns True if this rank has no pending request and does not exchange requests with
        others."""
        return not (self._agreement.is_shared or self.must_save or self.must_stop)

    def started(self) -> None:
        """Reports that a checkpoint is being written, either at ebb's request or on the trainer's
        own schedule."""
        for r in self._saves:
            wire().answer(r, "started")

    def done(self, path: str) -> None:
        """Reports that the checkpoint was written."""
        self._answer("done", path)

    def failed(self) -> None:
        """Reports that the checkpoint could not be written."""
        self._answer("failed", None)

    def _answer(self, status: str, path: Optional[str]) -> None:
        saves, self._saves, self.must_save = self._saves, [], False
        for r in saves:
            wire().answer(r, status, path)

    def end(self, is_clean: bool) -> None:
        """Called when training is over; checkpoint requests are refused from now on. IS_CLEAN is
        False after an exception."""
        w = wire()
        w.end_training(self)
        _control.release()
        self._agreement.end(is_clean)
        for r in self._stops:
            w.answer(r, "done")
        self._stops, self.must_stop = [], False
        self._saves += w.requests("CHECKPOINT")
        self.failed()
        w.listen(self._rank, role="worker")
