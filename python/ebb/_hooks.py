"""Hooks that the shim installs in frameworks after they are imported: this file has the hooks for
torch, tqdm and trainers, and _frameworks.py has the others.

Nothing here may print, or raise an exception into the job. With EBB_VERBOSE=1, one line on standard
error reports each hook that cannot be installed. Many programs import torch and never train, often
without cached bytecode of this package. Therefore everything that only a training run needs is
imported at its first step or batch.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import re
import sys
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _patches, _process

if TYPE_CHECKING:
    from ._steps import Tracker

_tracker: Optional[Tracker] = None
# hooked modules by name; a module may be imported again if its import failed
_done: dict[str, ModuleType] = {}


def _say(sentence: str) -> None:
    if os.environ.get("EBB_VERBOSE") == "1":
        try:
            print(f"ebb: {sentence}", file=sys.stderr)
        except Exception:
            pass  # standard error is closed or missing


def quiet(what: str, find: Callable[[], Callable[..., None]]) -> Callable[..., None]:
    """Returns a wrapper that calls the function returned by FIND and never raises. After its first
    exception, the wrapper does nothing. FIND is called when the wrapper is first called."""
    is_broken = False
    function: Optional[Callable[..., None]] = None

    def wrapper(*args: Any) -> None:
        nonlocal is_broken, function
        if is_broken:
            return
        try:
            if function is None:
                function = find()
            function(*args)
        except Exception as error:
            is_broken = True
            _say(f"no more marks from {what}: {error!r}")

    return wrapper


def the_tracker() -> Tracker:
    global _tracker
    if _tracker is None:
        from . import _control, _steps

        _tracker = _steps.Tracker(quiet("allocators", lambda: _control.at_hooked_step))
        atexit.unregister(_close_tracker)
        atexit.register(_close_tracker)
    return _tracker


def _close_tracker() -> None:
    if _tracker is not None:
        quiet("the end", lambda: _tracker.close)()


def reset() -> None:
    """Forgets the training loops and the hooked modules. Called after the hooks were removed."""
    global _tracker
    _tracker = None
    _done.clear()
    atexit.unregister(_close_tracker)


def tracked(what: str, name: str) -> Callable[..., None]:
    """Returns a method of the tracker, wrapped by quiet(). The first call of the method creates the
    tracker."""
    found = quiet(what, lambda: getattr(the_tracker(), name))
    found.__name__ = name
    return found


# ---- torch ----


def _hook_optimizers(module: ModuleType) -> None:
    on_step = tracked("optimizers", "on_step")

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        on_step(optimizer)

    # torch.compile must not trace the hook, because it would report unsupported code
    torch: Any = sys.modules.get("torch")
    keep_out = getattr(torch, "_disable_dynamo", None)
    kept_out = keep_out(hook) if keep_out else hook
    compiler = _compiler_callback()

    def choose(optimizer: Any, args: Any, kwargs: Any) -> None:
        # is_compiling is checked first, because calling the hook with dynamo disabled takes 3 µs,
        # too much for every step
        if torch.compiler.is_compiling() or compiler():
            kept_out(optimizer, args, kwargs)
        else:
            on_step(optimizer)

    handle = module.register_optimizer_step_post_hook(choose if _can_ask(torch) else kept_out)
    _patches.on_undo("the optimizers' step hook", handle.remove)


def _compiler_callback() -> Callable[[], Any]:
    """Returns a function whose result is true while a compiled region runs. In such a region,
    torch.compile skips the hook but would compile the functions that the hook calls."""
    try:
        from torch._C._dynamo.eval_frame import get_eval_frame_callback as found
    except ImportError:  # torch before 2.5
        return lambda: None
    return found


def _can_ask(torch: Any) -> bool:
    """Returns True if torch has torch.compiler.is_compiling. Checks the version number, because
    torch is still being imported and may not have the function yet."""
    found = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    return found is not None and (int(found[1]), int(found[2])) >= (2, 3)


def _is_for_accelerate() -> bool:
    """Returns True if the caller is in accelerate, which fetches the next batch before it returns
    the current one."""
    try:
        name = sys._getframe(2).f_globals.get("__name__")
    except ValueError:  # the iterator was not called from Python code
        return False
    return isinstance(name, str) and name.partition(".")[0] == "accelerate"


def _hook_begins(loader: Any) -> None:
    make = loader.__iter__
    on_iter = tracked("the start of an epoch", "on_iter")

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:
        made = make(self)
        on_iter(self, made, _is_for_accelerate())
        return made

    _patches.put(loader, "__iter__", __iter__)


def _hook_loaders(module: ModuleType) -> None:
    iterator = module._BaseDataLoaderIter
    take = iterator.__next__
    on_batch = tracked("batches", "on_batch")
    on_end = tracked("the end of an epoch", "on_end")

    @functools.wraps(take)
    def __next__(self: Any) -> Any:
        try:
            batch = take(self)
        except StopIteration:
            on_end(self)
            raise
        on_batch(self)
        return batch

    _hook_begins(module.DataLoader)
    _patches.put(iterator, "__next__", __next__)


def _hook_torchdata(module: ModuleType) -> None:
    # StatefulDataLoader needs no hook for batches, because its iterators call torch's iterators,
    # which are hooked
    _hook_begins(module.StatefulDataLoader)


# ---- tqdm, which torch imports ----


def _hook_tqdm(module: ModuleType) -> None:
    bar = module.tqdm
    update, close = bar.update, bar.close
    bars: Any = None
    home = os.getpid()

    def find(name: str) -> Callable[..., None]:
        nonlocal bars
        from . import _frameworks

        # in a forked child or a worker, bars count only some of the steps
        if os.getpid() != home or _frameworks.is_worker():
            return lambda bar: None
        if bars is None:
            from . import _bars

            bars = _bars.Bars(the_tracker())
        found: Callable[..., None] = getattr(bars, name)
        return found

    on_update = quiet("bars", lambda: find("on_update"))
    on_close = quiet("bars", lambda: find("on_close"))

    due = 0.0

    @functools.wraps(update)
    def counted(self: Any, n: Any = 1) -> Any:
        nonlocal due
        result = update(self, n)
        if monotonic() >= due:
            on_update(self)
            due = bars.due if bars else math.inf
        return result

    @functools.wraps(close)
    def closed(self: Any) -> None:
        on_close(self)
        close(self)

    _patches.put(bar, "update", counted)
    _patches.put(bar, "close", closed)


# ---- trainers ----


def _hook_transformers(module: ModuleType) -> None:
    from . import hf

    hf.install(default=True)


def _hook_lightning(module: ModuleType) -> None:
    from . import lightning

    lightning.install(default=True)


def _framework(name: str) -> Callable[[ModuleType], None]:
    def hook(module: ModuleType) -> None:
        from . import _frameworks

        getattr(_frameworks, f"hook_{name}")(module)

    return hook


HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "torch.optim.optimizer": _hook_optimizers,
    "torch.utils.data.dataloader": _hook_loaders,
    "torchdata.stateful_dataloader.stateful_dataloader": _hook_torchdata,
    "transformers.trainer": _hook_transformers,
    "lightning.pytorch": _hook_lightning,
    "pytorch_lightning": _hook_lightning,
    "deepspeed.runtime.engine": _framework("deepspeed"),
    "keras.src.callbacks": _framework("keras_fit"),
    "keras.src.models.model": _framework("keras_model"),
    "optax._src.update": _framework("optax"),
    "xgboost.core": _framework("xgboost"),
    "lightgbm.basic": _framework("lightgbm"),
    "sklearn.base": _framework("sklearn"),
    "tqdm.std": _hook_tqdm,
}
# Importing these frameworks does not mean that this process trains: many programs that import them
# never train, or train only in forked processes.
_WEAK = ("sklearn.base", "tqdm.std")


def loaded(name: str, module: ModuleType) -> bool:
    """Called by the shim when a module that it waits for has been imported. Returns False if the
    module is already hooked."""
    if _done.get(name) is module:
        return False
    _done[name] = module
    if name not in _WEAK:
        _process.set_hooked()
    try:
        HOOKS[name](module)
    except Exception as error:  # this version of the module is too old or too new
        _say(f"no marks from {name}: {error!r}")
    return True
