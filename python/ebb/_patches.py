"""Undoable changes to classes, modules and objects of the job."""

from __future__ import annotations

from typing import Any, Callable

_MISSING = object()
# name and undo function of each change, oldest first
_undo: list[tuple[str, Callable[[], bool]]] = []


def put(owner: Any, name: str, value: Any) -> None:
    """Sets an attribute of a class, module or object."""
    before = vars(owner).get(name, _MISSING)

    def restore() -> bool:
        if vars(owner).get(name) is not value:
            return False
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
        return True

    setattr(owner, name, value)
    _undo.append((f"{getattr(owner, '__name__', type(owner).__name__)}.{name}", restore))


def on_undo(what: str, restore: Callable[[], Any]) -> None:
    """Registers RESTORE, a function that undoes a change not made by put(). WHAT names the
    change."""
    _undo.append((what, lambda: restore() is not False))


def count() -> int:
    """Returns the number of changes made so far."""
    return len(_undo)


def undo(since: int = 0) -> list[str]:
    """Undoes all changes except the first SINCE ones, in the order from newest to oldest. A change
    cannot be undone if another tool has since changed the same attribute. Returns the names of such
    changes."""
    left = []
    while len(_undo) > since:
        try:
            what, restore = _undo.pop()
        except IndexError:  # another thread has already undone the change
            break
        try:
            is_restored = restore()
        except Exception:
            is_restored = False
        if not is_restored:
            left.append(what)
    return left
