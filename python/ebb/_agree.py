"""Makes all ranks save or stop at the same step. This agreement costs a byte or two per step.

Ranks receive a request at different times, and a rank that saves alone waits for the others for
ever. Therefore, at the end of step n, every rank starts a tiny all-reduce of its pending requests,
and reads the result at the end of step n + 1. By then the result has long been available, so no
rank waits, and all ranks read the same result at the same step. The all-reduce uses its own process
group on the CPU, not the GPU.

An all-reduce hangs if a rank does not take part, for example because only some ranks were started
under ebb. Therefore the ranks first check, through the process group's store, that all of them are
present. The first decision written to the store is final. If each rank decided on its own, a rank
whose wait timed out could come to a different decision than the others.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

# seconds to wait for ranks that start late; without ebb, the training would wait for them too
PATIENCE_S = 30.0

_rounds = 0
# process groups with an unfinished all-reduce, kept here because destroying such a group would
# block
_left: list[Any] = []


def _all_agree(store: Any, name: str, rank: int, size: int, yes: bool) -> bool:
    """Returns True if all ranks take part. The result is the same on all ranks."""
    store.set(f"{name}/{rank}", "1" if yes else "0")
    decision = f"{name}/all"
    try:
        if rank == 0:
            keys = [f"{name}/{r}" for r in range(size)]
            store.wait(keys, timedelta(seconds=PATIENCE_S))
            word = "yes" if all(store.get(k) == b"1" for k in keys) else "no"
        else:
            store.wait([decision], timedelta(seconds=PATIENCE_S + 5))
            word = "no"  # has no effect: rank 0 has already stored its decision
    except Exception:
        word = "no"
    return bool(store.compare_set(decision, "", word) == b"yes")


class Agreement:
    """Exchanges requests among the ranks of one training run. If torch.distributed is not used,
    there is only one rank."""

    def __init__(self) -> None:
        self._group: Any = None
        self._work: Any = None
        self._flags: Any = None
        self.is_possible = True  # False if there are several ranks and not all of them take part

    def begin(self, world_size: int, wanted: bool) -> None:
        """Starts the exchange. All ranks call this at the same point, before the first step. A rank
        that cannot receive requests passes WANTED=False. If any rank passes False, no rank
        exchanges requests."""
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
        if not _all_agree(store, name, rank, size, True):
            return None
        try:
            made = dist.new_group(backend="gloo")
        except Exception:
            made = None
        if not _all_agree(store, f"ebb/{_rounds}/group", rank, size, made is not None):
            return None
        return made

    @property
    def is_shared(self) -> bool:
        """Returns True if several ranks exchange their requests at every step."""
        return self._group is not None

    def exchange(self, save: bool, stop: bool) -> tuple[bool, bool]:
        """Exchanges requests. Called at the end of every step. With a single rank, returns its own
        requests. With several ranks, returns the requests that were pending on any rank at the end
        of the previous step."""
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
        except Exception:  # a rank has exited, so the training cannot continue
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
        """Ends the exchange after the last step. IS_CLEAN is False after an exception: the other
        ranks may then never call this function, so this rank does not wait for them."""
        work, group, self._work, self._group = self._work, self._group, None, None
        if group is None:
            return
        try:
            if not is_clean:
                raise RuntimeError
            if work is not None:
                work.wait(timedelta(seconds=PATIENCE_S))
            # the group is destroyed here, because its threads might otherwise still run when the
            # process exits
            sys.modules["torch"].distributed.destroy_process_group(group)
        except Exception:
            _left.append((work, group))
