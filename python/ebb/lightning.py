"""For Lightning: marks, memory in its loggers, checkpoints on request, and resuming from the last
complete checkpoint. Works with `lightning` and with `pytorch_lightning`.

    from ebb.lightning import EbbCallback
    trainer = Trainer(..., callbacks=[EbbCallback()])

No signal handler is installed, because Lightning itself handles SIGUSR1 and SIGTERM. Nothing here
raises into the job.
"""

from __future__ import annotations

import functools
import glob
import importlib
import inspect
import logging
import math
import os
import shutil
import sys
import weakref
import zipfile
from typing import Any, Callable, Optional

from . import _checkpoints, _control, _memory, _patches, _referrers
from ._asked import Asked, note
from ._wire import rank_of_environment, wire

__all__ = ["EbbCallback", "install", "last_checkpoint"]

_log = logging.getLogger("lightning.pytorch.ebb")

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_FOLDER = "ebb-checkpoints"
_KEPT = 2  # number of requested checkpoints that are kept


def _packages() -> list[Any]:
    """Returns the packages in use or, if none is in use yet, the first one installed."""
    found = [sys.modules[n] for n in _PACKAGES if hasattr(sys.modules.get(n), "Callback")]
    for name in _PACKAGES if not found else ():
        try:
            return [importlib.import_module(name)]
        except ImportError:
            continue
    if not found:
        raise ImportError("ebb.lightning requires lightning or pytorch_lightning")
    return found


def _quietly(hook: Callable[..., None]) -> Callable[..., None]:
    """Wraps a hook so that an exception in it does not reach the job."""

    @functools.wraps(hook)
    def safe(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, trainer, *args, **kwargs)
        except Exception:
            pass

    return safe


# ---- length of a training run ----


def _batches(trainer: Any) -> Optional[int]:
    """Returns the number of batches per epoch of this rank."""
    count = trainer.num_training_batches
    return int(count) if count and math.isfinite(count) else None


def _steps_per_epoch(trainer: Any, module: Any) -> Optional[int]:
    batches = _batches(trainer)
    if batches is None or not module.automatic_optimization:
        return None  # the number of steps is unknown with manual optimization
    return -(-batches // int(trainer.accumulate_grad_batches))


def _max_steps(trainer: Any, steps_per_epoch: Optional[int]) -> Optional[int]:
    limits = [trainer.max_steps] if trainer.max_steps and trainer.max_steps > 0 else []
    if steps_per_epoch and trainer.max_epochs and trainer.max_epochs > 0:
        limits.append(steps_per_epoch * trainer.max_epochs)
    return min(limits) if limits else None


def _data(trainer: Any) -> tuple[Optional[int], Optional[int]]:
    """Returns the length of the data set, and the number of examples per step over all ranks."""
    loader = trainer.train_dataloader
    try:
        examples: Optional[int] = len(loader.dataset)
    except Exception:  # several loaders, or a loader without a length
        examples = None
    size = getattr(loader, "batch_size", None)
    if not isinstance(size, int):
        return examples, None
    return examples, size * int(trainer.accumulate_grad_batches) * int(trainer.world_size)


class _Training:
    """The state of one training run, from its beginning to its end."""

    def __init__(self, trainer: Any) -> None:
        self.asked = Asked()
        several = trainer.world_size > 1
        self.rank: Optional[int] = trainer.global_rank if several else rank_of_environment()
        self.tail = "" if self.rank is None else f"\nRANK={self.rank}"
        self.step = int(trainer.global_step)
        # True if the next event can only be a step, because no request is pending and nothing was
        # logged
        self.is_even = False
        self.batch = 0  # index of the last processed batch in its epoch
        self.batches: Optional[int] = None  # number of batches of the current epoch
        self.epoch = 0
        self.last = math.inf  # number of the last step of the training


class _Hooks:
    """The methods of the callback. EbbCallback is created from this class and the Callback classes
    of the installed packages."""

    def __init__(self, log_every: Optional[int] = None, resume: bool = True) -> None:
        super().__init__()
        if log_every is not None and log_every < 0:
            raise ValueError(f"log_every must be a number of steps (at least 0), not {log_every}")
        self.log_every = log_every
        self.resume = resume
        self._training: Optional[_Training] = None
        self._is_late = False  # True if training was already running when ebb attached
        install()

    def __reduce__(self) -> Any:
        # copying a trainer, or sending it to ranks, copies its callbacks, but a copy of a callback
        # has no training in progress
        return _again, (self.log_every, self.resume)

    def _now(self, trainer: Any) -> _Training:
        if self._training is None:
            self._training = _Training(trainer)
        return self._training

    # ---- begin and end of a training run ----

    @_quietly
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(trainer, pl_module)

    def _begin(self, trainer: Any, pl_module: Any, is_late: bool = False) -> None:
        self._training = None
        t = self._now(trainer)
        per_epoch = _steps_per_epoch(trainer, pl_module)
        examples, batch = _data(trainer)
        wire().mark(
            "begin",
            True,
            step=t.step,
            epoch=trainer.current_epoch,
            max_steps=_max_steps(trainer, per_epoch),
            steps_per_epoch=per_epoch,
            effective_batch=batch,
            examples=examples,
            rank=t.rank,
        )
        t.asked.begin(t.rank, trainer.world_size, is_late)

    @_quietly
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        t = self._now(trainer)
        wire().mark("end", True, step=trainer.global_step, rank=t.rank)
        self._close(is_clean=True)

    @_quietly
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close(is_clean=False)

    def _close(self, is_clean: bool) -> None:
        t, self._training = self._training, None
        if t is not None:
            t.asked.end(is_clean)

    # ---- steps and epochs ----

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        t = self._training
        try:
            if t is None and self._is_late:
                self._begin(trainer, pl_module, is_late=True)
            step = trainer.global_step
            if t is not None and t.is_even and t.batch < batch_idx and step < t.last:
                w = wire()
                epoch = t.epoch + (batch_idx + 1) / t.batches if t.batches else None
                if not w.waiting and w.hold(step, t.tail, epoch):
                    t.step = step
                    return
            self._batch_ended(self._now(trainer), trainer, batch_idx, int(step))
        except Exception:
            pass

    def _batch_ended(self, t: _Training, trainer: Any, batch_idx: int, step: int) -> None:
        if step == t.step:
            wire().substep(step + 1, t.tail)
            return
        t.step, t.batch = step, batch_idx
        t.batches, t.epoch = _batches(trainer), trainer.current_epoch
        t.last = trainer.max_steps if trainer.max_steps > 0 else math.inf
        epoch = t.epoch + (batch_idx + 1) / t.batches if t.batches else None
        is_told = wire().step(step, epoch, t.tail, step >= t.last)
        if t.asked.poll():
            self._obey(t, trainer)
        is_logged = self._log_now(trainer, step)
        if is_told:
            _control.at_step(step)
        t.is_even = t.asked.is_idle and not is_logged and type(trainer.global_step) is int

    @_quietly
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        t = self._now(trainer)
        if trainer.is_last_batch:  # otherwise the epoch ended early
            epoch, step = trainer.current_epoch + 1, trainer.global_step
            wire().mark("epoch", True, step=step, epoch=epoch, rank=t.rank)

    # ---- evaluation ----

    @_quietly
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            rank = self._now(trainer).rank
            wire().mark("phase", True, name="eval", state="begin", rank=rank)

    @_quietly
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            rank = self._now(trainer).rank
            wire().mark("phase", True, name="eval", state="end", rank=rank)
            wire().mark("eval", True, step=trainer.global_step, rank=rank)

    # ---- checkpoints ----

    def _obey(self, t: _Training, trainer: Any) -> None:
        if t.asked.must_save:
            path = os.path.join(_own_folder(trainer), f"step-{t.step}.ckpt")
            try:
                t.asked.started()
                trainer.save_checkpoint(path)
            except Exception:
                # the other ranks wait at the barrier at the end of save_checkpoint
                trainer.strategy.barrier("Trainer.save_checkpoint")
                t.asked.failed()
            else:
                if trainer.is_global_zero:
                    _keep_newest(os.path.dirname(path))
                t.asked.done(path)
        if t.asked.must_stop:
            trainer.should_stop = True

    def _save_begins(self, trainer: Any) -> None:
        wire().mark("phase", True, name="save", state="begin", rank=self._now(trainer).rank)

    def _save_ended(self, trainer: Any, path: Optional[str]) -> None:
        t = self._now(trainer)
        wire().mark("phase", True, name="save", state="end", rank=t.rank)
        if path is not None:
            wire().mark("save", True, step=trainer.global_step, path=path, rank=t.rank)

    # ---- memory in the loggers ----

    def _log_now(self, trainer: Any, step: int) -> bool:
        """Logs memory if STEP is a multiple of the logging interval. Returns False if memory is
        never logged."""
        every = trainer.log_every_n_steps if self.log_every is None else self.log_every
        if not every or not trainer.loggers:
            return False
        if step % every:
            return True
        at = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", step)
        for logger in trainer.loggers:
            logger.log_metrics(_memory.for_logs(), step=at)
        return True


_made: dict[tuple[Any, ...], type] = {}


def _class_for(bases: tuple[Any, ...]) -> type:
    if bases not in _made:
        # the callback is derived from the Callback classes of both packages: each package calls
        # hooks by name, but in some places checks for its own class
        _made[bases] = type("EbbCallback", (_Hooks, *bases), {"__module__": __name__})
    return _made[bases]


def _again(log_every: Optional[int], resume: bool) -> Any:
    return EbbCallback(log_every, resume)


# ---- resuming ----


def _own_folder(trainer: Any) -> str:
    return os.path.join(os.path.abspath(trainer.default_root_dir), _FOLDER)


def _by_age(paths: list[str]) -> list[str]:
    """Sorts paths by time, newest first."""
    return sorted(paths, key=lambda p: os.stat(p).st_mtime_ns, reverse=True)


def _keep_newest(folder: str) -> None:
    try:
        for path in _by_age(glob.glob(os.path.join(glob.escape(folder), "step-*.ckpt")))[_KEPT:]:
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
    except OSError:
        pass


def _lacks(path: str) -> Optional[str]:
    """Describes what is missing from the checkpoint at PATH, or returns None if it is complete."""
    # if each rank writes its own part, the checkpoint is a folder
    if os.path.isdir(path):
        return None if os.listdir(path) else "everything"
    if not _checkpoints.is_whole_file(path):
        return "its end"
    try:
        with zipfile.ZipFile(path) as z:
            name = next(n for n in z.namelist() if n.endswith("/data.pkl"))
            text = z.read(name)
    except (OSError, StopIteration, zipfile.BadZipFile):
        return None  # not a zip file, but Lightning may still be able to read it
    # the pickle of a complete checkpoint contains these keys as plain text
    absent = [k for k in ("optimizer_states", "loops") if k.encode() not in text]
    return " and ".join(absent) or None


def _candidates(trainer: Any) -> list[str]:
    root = os.path.abspath(trainer.default_root_dir)
    folders = [_own_folder(trainer)]
    folders += [c.dirpath for c in trainer.checkpoint_callbacks if getattr(c, "dirpath", None)]
    patterns = [os.path.join(glob.escape(str(f)), "*.ckpt") for f in folders]
    patterns.append(os.path.join(glob.escape(root), "*", "version_*", "checkpoints", "*.ckpt"))
    return _by_age(list({p for pattern in patterns for p in glob.glob(pattern)}))


def _find(trainer: Any) -> tuple[Optional[str], list[str]]:
    passed: list[str] = []
    for path in _candidates(trainer):
        lacks = _lacks(path)
        if lacks is None and _checkpoints.is_of_this_run(path):
            return path, passed
        name = os.path.basename(path)
        passed.append(f"{name} lacks {lacks}" if lacks else f"{name} belongs to an earlier run")
    return None, passed


def last_checkpoint(trainer: Any) -> Optional[str]:
    """Returns the newest complete checkpoint of this run. Considers checkpoints that ebb requested
    and those of ModelCheckpoint callbacks."""
    return _find(trainer)[0]


_resumed: set[str] = set()  # folders from which this process has already resumed


def _with_resume(trainer: Any, fit: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Returns the arguments for fit(), adding the checkpoint to resume from if the caller passed
    none."""
    signature = inspect.signature(fit)
    bound = signature.bind(trainer, *args, **kwargs)
    folder = os.path.abspath(trainer.default_root_dir)
    if bound.arguments.get("ckpt_path") is not None or folder in _resumed:
        return args, kwargs
    _resumed.add(folder)
    path, passed = _find(trainer)
    text = "; ".join(passed[:5]) or None
    rank = trainer.global_rank if trainer.world_size > 1 else None
    if path is None:
        text = text or "the folder has no checkpoint"
        wire().mark("resume", True, state="beginning", path=folder, text=text, rank=rank)
        _log.warning("ebb: no complete checkpoint in %s: starting from the beginning", folder)
        return args, kwargs
    wire().mark("resume", True, state="checkpoint", path=path, text=text, rank=rank)
    bound.arguments["ckpt_path"] = path
    if "weights_only" in signature.parameters and bound.arguments.get("weights_only") is None:
        # full unpickling is safe, because this run wrote the file
        bound.arguments["weights_only"] = False
    return bound.args[1:], bound.kwargs


# ---- hooks on the Trainer itself ----


def _callbacks(trainer: Any) -> list[Any]:
    return [c for c in trainer.callbacks if isinstance(c, _Hooks)]


def _is_resume_wanted(callbacks: list[Any]) -> bool:
    if os.environ.get("EBB_RESUME") != "1" or os.environ.get("EBB_NO_RESUME") == "1":
        return False
    return all(c.resume for c in callbacks)


_is_default = False
# the automatically added callback of each trainer
_added: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _prepare(trainer: Any, package: Any) -> list[Any]:
    """Adds the default callback if it is enabled and the trainer has no callback of ebb. If the
    trainer has several callbacks of ebb, keeps only the first one."""
    found = _callbacks(trainer)
    if not found and _is_default:
        found = [_class_for((package.Callback,))(log_every=0)]
        # callbacks that save checkpoints must remain last
        trainer.callbacks.insert(0, found[0])
        _added[trainer] = found[0]
    for c in found[1:]:
        trainer.callbacks.remove(c)
    return found[:1]


def _hook_fit(fit: Callable[..., Any], package: Any) -> Callable[..., Any]:
    @functools.wraps(fit)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            found = _prepare(self, package)
            if found and _is_resume_wanted(found):
                args, kwargs = _with_resume(self, fit, args, kwargs)
        except Exception:
            pass
        return fit(self, *args, **kwargs)

    return hooked


def _tell(trainer: Any, what: str, *args: Any) -> None:
    try:
        for c in _callbacks(trainer):
            getattr(c, what)(trainer, *args)
    except Exception:
        pass


def _hook_save(save: Callable[..., Any], package: Any) -> Callable[..., Any]:
    @functools.wraps(save)
    def hooked(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(self, "_save_begins")
        path = None
        try:
            result = save(self, filepath, *args, **kwargs)
            path = os.path.abspath(str(filepath))
            return result
        finally:
            _tell(self, "_save_ended", path)

    return hooked


_HOOKS = {"fit": _hook_fit, "save_checkpoint": _hook_save}


def install(default: bool = False) -> None:
    """Installs hooks on the Trainer of each package in use. If DEFAULT is True, every trainer gets
    a callback that writes no logs, even in scripts that do not use ebb. Repeated calls are
    harmless."""
    global _is_default
    if default and not _is_default:
        _is_default = True
        _patches.on_undo("the default callback", _end_default)
    for package in _packages():
        trainer = getattr(package, "Trainer", None)
        for name, hook in _HOOKS.items():
            method = getattr(trainer, "__dict__", {}).get(name)
            if method is None:
                text = (f"this version of {package.__name__} has no Trainer.{name}, "
                        "so ebb cannot hook it")
                note("lightning", text)
            elif not getattr(method, "_is_ebbs", False):
                hooked = hook(method, package)
                hooked._is_ebbs = True  # type: ignore[attr-defined]
                _patches.put(trainer, name, hooked)


        if default and trainer is not None:
            for one in _referrers.running(trainer):
                _join(one, package)


def _end_default() -> None:
    """Removes the automatically added callbacks."""
    global _is_default
    _is_default = False
    for trainer, added in list(_added.items()):
        trainer.callbacks = [c for c in trainer.callbacks if c is not added]
        added._close(is_clean=True)
    _added.clear()


def _join(trainer: Any, package: Any) -> None:
    """Adds a callback to training in progress. The list of callbacks is replaced rather than
    changed, because the trainer may be iterating over it."""
    if _callbacks(trainer):
        return
    added = _class_for((package.Callback,))(log_every=0)
    added._is_late = True
    trainer.callbacks = [added, *trainer.callbacks]
    _added[trainer] = added


# must be the last line: it imports Lightning, and the shim then calls install() of this module
EbbCallback: Any = _class_for(tuple(p.Callback for p in _packages()))
