"""Ranks agree on the step in which they save or stop, at the price of a byte or two a step.

Each rank hears of a request at another moment, and one that saves alone waits for the others for
ever. So at the end of step n every rank starts a tiny reduction of what it was asked, on a group of
its own over the CPU, and reads the result at the end of step n + 1, when it has long been there:
all read the same, in the same step, and nobody waits. The GPU takes no part in it.

A reduction hangs if a rank is not in it, say because only some were started under ebb. Therefore
the ranks first make sure, through the store they met at, that all of them are here. The first
answer written there counts, so that one which gave up and one which did not cannot both be right.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

PATIENCE_S = 30.0  # with ranks that come late; they would wait for each other anyway

_rounds = 0
_left: list[Any] = []  # groups with something under way: their end would wait for it


def _all_say_yes(store: Any, name: str, rank: int, size: int, yes: bool) -> bool:
    """True on all ranks, or on none."""
    store.set(f"{name}/{rank}", "1" if yes else "0")
    decision = f"{name}/all"
    try:
        if rank == 0:
            keys = [f"{name}/{r}" for r in range(size)]
            store.wait(keys, timedelta(seconds=PATIENCE_S))
            word = "yes" if all(store.get(k) == b"1" for k in keys) else "no"
        else:
            store.wait([decision], timedelta(seconds=PATIENCE_S + 5))
            word = "no"  # not used: it is decided
    except Exception:
        word = "no"
    return bool(store.compare_set(decision, "", word) == b"yes")


class Agreement:
    """Of the ranks of one training. Without torch.distributed there is nobody to agree with."""

    def __init__(self) -> None:
        self._group: Any = None
        self._work: Any = None
        self._flags: Any = None
        self.is_possible = True  # False: several ranks, and no way to agree

    def begin(self, world_size: int, wanted: bool) -> None:
        """All ranks call this at the same point, before the first step. If it is not WANTED by one,
        since nobody could ask it, all do without."""
        torch = sys.modules.get("torch")
        dist = getattr(torch, "distributed", None)
        is_up = dist is not None and dist.is_available() and dist.is_initialized()
        if not is_up:
            self.is_possible = world_size <= 1
            return
        if dist.get_world_size() <= 1:  # type: ignore[union-attr]
            return
        self.is_possible = False
        try:
            self._group = self._meet(dist, wanted)
            self.is_possible = self._group is not None
        except Exception:
            self._group = None

    @staticmethod
    def _meet(dist: Any, wanted: bool) -> Any:
        global _rounds
        from torch.distributed.distributed_c10d import _get_default_store

        store = _get_default_store()
        rank, size = dist.get_rank(), dist.get_world_size()
        _rounds += 1
        name = f"ebb/{_rounds}/here"
        if not wanted:
            store.set(f"{name}/{rank}", "0")
            store.compare_set(f"{name}/all", "", "no")
            return None
        if not _all_say_yes(store, name, rank, size, True):
            return None
        try:
            made = dist.new_group(backend="gloo")
        except Exception:
            made = None
        if not _all_say_yes(store, f"ebb/{_rounds}/group", rank, size, made is not None):
            return None
        return made

    @property
    def is_shared(self) -> bool:
        """Several ranks take part, in every step."""
        return self._group is not None

    def exchange(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Called at the end of every step. With several ranks: what any of them said at the end of
        the step before."""
        if self._group is None:
            return (save, stop) if self.is_possible else (False, False)
        found = self._read()
        self._start(save, stop)
        return found

    def _read(self) -> tuple[bool, bool]:
        if self._work is None:
            return False, False
        try:
            self._work.wait()
            save, stop = self._flags.tolist()
        except Exception:  # a rank is gone, and with it the training
            self._group, self.is_possible = None, False
            return False, False
        finally:
            self._work = None
        return bool(save), bool(stop)

    def _start(self, save: bool, stop: bool) -> None:
        torch = sys.modules["torch"]
        if self._group is None:
            return
        try:
            self._flags = torch.tensor([int(save), int(stop)], dtype=torch.int32)
            dist: Any = torch.distributed
            self._work = dist.all_reduce(
                self._flags, op=dist.ReduceOp.MAX, group=self._group, async_op=True
            )
        except Exception:
            self._group, self.is_possible, self._work = None, False, None

    def end(self, is_clean: bool) -> None:
        """After the last step. Where it was not CLEAN, the other ranks may never come to it."""
        work, group, self._work, self._group = self._work, self._group, None, None
        if group is None:
            return
        try:
            if not is_clean:
                raise RuntimeError
            if work is not None:
                work.wait(timedelta(seconds=PATIENCE_S))
            # not left to the end of the process, where its threads would be taken by surprise
            sys.modules["torch"].distributed.destroy_process_group(group)
        except Exception:
            _left.append((work, group))
