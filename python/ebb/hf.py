"""For the Hugging Face Trainer: marks, memory in its logs, checkpoints on request, resuming from
the last complete checkpoint, and a cleanup that measures its effect.

    from ebb.hf import EbbCallback
    trainer = Trainer(..., callbacks=[EbbCallback()])

Nothing here raises into the job. docs/guide/python.md lists the marks and when they are sent.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import weakref
from typing import Any, Callable, Optional

from transformers import TrainerCallback

from . import _checkpoints, _control, _memory, _patches, _referrers
from ._asked import Asked, note
from ._cleanup import MemoryCleanup
from ._wire import rank_of_environment, wire

__all__ = ["EbbCallback", "MemoryCleanup", "install", "last_checkpoint"]

# a child of transformers' logger, so that the log level of transformers applies
_log = logging.getLogger("transformers.ebb")


def _quietly(hook: Callable[..., None]) -> Callable[..., None]:
    """Wraps a hook so that an exception in it does not reach the job."""

    @functools.wraps(hook)
    def safe(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            hook(self, args, state, control, **kwargs)
        except Exception:
            pass

    return safe


_note = functools.partial(note, "hf")


# ---- length of a training run ----


def _length(thing: Any) -> Optional[int]:
    try:
        return len(thing)
    except Exception:  # the data set is iterable, or its __len__ raises
        return None


def _steps_per_epoch(args: Any, state: Any, loader: Any) -> Optional[int]:
    batches = _length(loader)
    if not batches:
        return None
    epochs = args.num_train_epochs
    if args.max_steps <= 0 and epochs >= 1 and epochs == int(epochs):
        whole, rest = divmod(state.max_steps, int(epochs))
        if rest == 0 and whole > 0:
            return int(whole)  # the trainer's own count of steps per epoch
    return max(1, -(-batches // int(args.gradient_accumulation_steps)))


def _effective_batch(args: Any, trainer: Any) -> Optional[int]:
    try:
        return int(trainer.get_total_train_batch_size(args))
    except Exception:  # there is no trainer, or it lacks this method
        per_rank = args.train_batch_size * args.gradient_accumulation_steps
        return int(per_rank * args.world_size) or None


def _is_model_only(args: Any) -> bool:
    return bool(getattr(args, "save_only_model", False))  # exists since transformers 4.37


class _Training:
    """The state of one training run, from its beginning to its end."""

    def __init__(self, args: Any) -> None:
        self.asked = Asked()
        self.rank: Optional[int] = (
            args.process_index if args.world_size > 1 else rank_of_environment()
        )
        self.tail = "" if self.rank is None else f"\nRANK={self.rank}"
        self.is_saving = False  # True between the marks for the beginning and end of a save
        self.folder = args.output_dir  # folder of the checkpoints
        self.is_ours = False  # True if only ebb requested a save at this step
        self.is_evaluating = False
        self.has_length = False
        # True if the next event can only be a step, and not the end of an epoch or a save
        self.is_even = False


class EbbCallback(TrainerCallback):
    """Sends the steps of the training run to ebb, and carries out ebb's requests.

    log_every: None adds memory to each of the trainer's own logs; N also logs memory every N steps;
        0 logs no memory.
    resume: resume from the last complete checkpoint when ebb starts the job again (EBB_RESUME=1).
    """

    def __init__(self, log_every: Optional[int] = None, resume: bool = True) -> None:
        if log_every is not None and log_every < 0:
            raise ValueError(f"log_every must be a number of steps (at least 0), not {log_every}")
        self.log_every = log_every
        self.resume = resume
        self._training: Optional[_Training] = None
        self._trainer: Callable[[], Any] = lambda: None
        install()

    def __getstate__(self) -> dict[str, Any]:
        # copying a trainer copies its callbacks, but a copy of a callback has no training in
        # progress
        return {"log_every": self.log_every, "resume": self.resume}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._training = None
        self._trainer = lambda: None

    def _now(self, args: Any) -> _Training:
        if self._training is None:
            self._training = _Training(args)
        return self._training

    # ---- begin and end of a training run ----

    @_quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begin(args, state, **kwargs)

    def _begin(self, args: Any, state: Any, is_late: bool = False, **kwargs: Any) -> None:
        self._training = None
        t = self._now(args)
        loader = kwargs.get("train_dataloader")
        steps_per_epoch = _steps_per_epoch(args, state, loader)
        t.has_length = steps_per_epoch is not None
        wire().mark(
            "begin",
            True,
            step=state.global_step,
            epoch=state.epoch,
            max_steps=state.max_steps if state.max_steps > 0 else None,
            steps_per_epoch=steps_per_epoch,
            effective_batch=_effective_batch(args, self._trainer()),
            examples=_length(getattr(loader, "dataset", None)),
            rank=t.rank,
        )
        t.asked.begin(t.rank, args.world_size, is_late)
        if _is_model_only(args) and wire().is_there:
            text = (
                "save_only_model is set: checkpoints lack the optimizer state, so a restart cannot "
                "continue exactly where the job stopped"
            )
            _note(text)
            _log.warning("ebb: %s", text)

    @_quietly
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._now(args)
        wire().mark("end", True, step=state.global_step, epoch=state.epoch, rank=t.rank)
        self._close(is_clean=True)

    def _close(self, is_clean: bool) -> None:
        t, self._training = self._training, None
        if t is not None:
            t.asked.end(is_clean)

    # ---- steps ----

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._training
        try:
            if t is not None and t.is_even:  # fast path for most short steps
                w, step = wire(), state.global_step
                if not w.waiting and step < state.max_steps and w.hold(step, t.tail, state.epoch):
                    return
            self._step_ended(self._now(args), state, control)
        except Exception:
            pass

    def _step_ended(self, t: _Training, state: Any, control: Any) -> None:
        step, epoch = int(state.global_step), state.epoch
        epoch = None if epoch is None else float(epoch)
        is_told = wire().step(step, epoch, t.tail, step >= state.max_steps)
        self._obey(t, control)
        if self.log_every and step % self.log_every == 0:
            self._log_now(control)
        if is_told:
            _control.at_step(step)
        t.is_even = (
            t.asked.is_idle
            and not self.log_every
            and type(state.global_step) is int
            and type(state.epoch) is type(epoch)
        )

    @_quietly
    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._now(args)
        wire().substep(int(state.global_step) + 1, t.tail)

    @_quietly
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._now(args)
        epoch = state.epoch
        if epoch is None:
            return
        # an epoch that max_steps or a stop request ended early is not complete
        is_whole = abs(epoch - round(epoch)) < 1e-9 * max(1.0, epoch)
        if is_whole if t.has_length else not control.should_training_stop:
            wire().mark("epoch", True, step=state.global_step, epoch=epoch, rank=t.rank)

    def _obey(self, t: _Training, control: Any) -> None:
        t.is_ours = False
        if not t.asked.poll():
            return
        if t.asked.must_save:
            t.is_ours = not control.should_save
            control.should_save = True
        if t.asked.must_stop:
            control.should_training_stop = True

    # ---- evaluation ----

    @_quietly
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._now(args)
        if not t.is_evaluating:
            t.is_evaluating = True
            wire().mark("phase", True, name="eval", state="begin", rank=t.rank)

    @_quietly
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._evaluated(args, state, True)

    @_quietly
    def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **kwargs: Any) -> None:
        self._evaluated(args, state, False)

    def _evaluated(self, args: Any, state: Any, is_eval: bool) -> None:
        t = self._now(args)
        w = wire()
        if t.is_evaluating:
            t.is_evaluating = False
            w.mark("phase", True, name="eval", state="end", rank=t.rank)
        if is_eval:
            w.mark("eval", True, step=state.global_step, epoch=state.epoch, rank=t.rank)

    # ---- checkpoints ----

    def _save_begins(self, args: Any, folder: str) -> None:
        t = self._now(args)
        t.is_saving = True
        t.folder = folder
        wire().mark("phase", True, name="save", state="begin", rank=t.rank)
        t.asked.started()

    def _save_failed(self) -> bool:
        """Handles a failed save. Returns True if only ebb requested the save, because the failure
        must then not end the job."""
        t = self._training
        if t is None:
            return False
        self._save_is_over(t)
        t.asked.failed()
        return t.is_ours

    @staticmethod
    def _save_is_over(t: _Training) -> None:
        if t.is_saving:
            t.is_saving = False
            wire().mark("phase", True, name="save", state="end", rank=t.rank)

    @_quietly
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self._now(args)
        path = os.path.abspath(os.path.join(t.folder, f"checkpoint-{state.global_step}"))
        lacks = None
        # only the files of this process are checked, because the other ranks write only a small
        # part of the checkpoint
        if args.should_save:
            rank = args.process_index if args.world_size > 1 else None
            lacks = _checkpoints.missing(path, _is_model_only(args), args.world_size, rank)
        self._save_is_over(t)
        if lacks:
            _note(f"the checkpoint {path} lacks {lacks}")
            t.asked.failed()
            return
        step, epoch = state.global_step, state.epoch
        wire().mark("save", True, step=step, epoch=epoch, path=path, rank=t.rank)
        t.asked.done(path)

    # ---- memory in the trainer's logs ----

    def _add_memory(self, logs: dict[str, Any]) -> None:
        if self.log_every != 0 and not any(k.startswith(("eval_", "test_")) for k in logs):
            for key, value in _memory.for_logs().items():
                logs.setdefault(key, value)

    def _log_now(self, control: Any) -> None:
        if control.should_log:
            return  # the trainer's own log at this step already includes memory
        trainer = self._trainer()
        if trainer is not None:
            trainer.log(_memory.for_logs())


class _DefaultCallback(EbbCallback):
    """The callback that is added automatically. It adds nothing to the trainer's logs."""

    def __new__(cls) -> _DefaultCallback:
        made = super().__new__(cls)
        _defaults.add(made)
        return made

    def __init__(self) -> None:
        super().__init__(log_every=0)


class _LateCallback(_DefaultCallback):
    """The callback for training that was already running when ebb attached."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._training is None:
            try:
                handler = getattr(self._trainer(), "callback_handler", None)
                kwargs.setdefault("train_dataloader", getattr(handler, "train_dataloader", None))
                self._begin(args, state, is_late=True, **kwargs)
            except Exception:
                pass
        super().on_step_end(args, state, control, **kwargs)


# ---- resuming ----


def last_checkpoint(args: Any) -> Optional[str]:
    """Returns the newest complete checkpoint of this run in ARGS.output_dir (TrainingArguments),
    or None."""
    return _checkpoints.last_whole(args.output_dir, _is_model_only(args), args.world_size)[0]


_resumed: set[str] = set()  # folders from which this process has already resumed
_chosen: set[str] = set()  # checkpoints from which this process has already resumed


def _is_resume_wanted(callbacks: list[EbbCallback]) -> bool:
    if os.environ.get("EBB_RESUME") != "1" or os.environ.get("EBB_NO_RESUME") == "1":
        return False
    return all(c.resume for c in callbacks)


def _resume_from(args: Any) -> Optional[str]:
    """Returns the checkpoint to resume from, or None. Returns a checkpoint only at the first call
    for a folder: a second train() in the same script must start from the beginning."""
    folder = os.path.abspath(args.output_dir)
    if folder in _resumed:
        return None
    _resumed.add(folder)
    path, passed = _checkpoints.last_whole(folder, _is_model_only(args), args.world_size)
    text = "; ".join(passed[:5]) or None
    rank = args.process_index if args.world_size > 1 else None
    if path is None:
        text = text or "the folder has no checkpoint"
        wire().mark("resume", True, state="beginning", path=folder, text=text, rank=rank)
        _log.warning("ebb: no complete checkpoint in %s: starting from the beginning", folder)
    else:
        step = _checkpoints.step_of(path)
        wire().mark("resume", True, state="checkpoint", step=step, path=path, text=text, rank=rank)
        _log.info("ebb: resuming from %s", path)
    return path


def _with_resume(
    trainer: Any, train: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """Returns the arguments for train(), adding the checkpoint to resume from if the caller passed
    none."""
    bound = inspect.signature(train).bind(trainer, *args, **kwargs)
    given = bound.arguments.get("resume_from_checkpoint")
    if bound.arguments.get("trial") is not None:
        return args, kwargs
    if given is not None and given is not False and given is not True:
        _note(f"not resuming from the last checkpoint: the script passes {given}")
        return args, kwargs
    path = _resume_from(trainer.args)
    if path is not None:
        bound.arguments["resume_from_checkpoint"] = path
        _chosen.add(path)
    return bound.args[1:], bound.kwargs


def _mend(trainer: Any, path: str, result: Any) -> bool:
    """Loads the weights of a checkpoint, whichever of two naming schemes its parameters have.

    transformers 5 saves some models under the parameter names of the Hub, but its Trainer loads
    only the model's own names. Parameters whose names differ keep their initial values, and only a
    warning is logged (huggingface/transformers#48805). from_pretrained knows both schemes."""
    import torch

    if not result.unexpected_keys or not hasattr(trainer.model, "from_pretrained"):
        return False
    try:
        with torch.random.fork_rng(devices=[]):
            fresh, info = type(trainer.model).from_pretrained(path, output_loading_info=True)
        left = trainer.model.load_state_dict(fresh.state_dict(), strict=False)
        is_mended = not info["missing_keys"] and not left.missing_keys
    except Exception:
        is_mended = False
    if not is_mended:
        _note(f"{len(result.missing_keys)} weights could not be restored from {path}")
    return is_mended


# ---- hooks on the Trainer itself ----


def _callbacks(trainer: Any) -> list[EbbCallback]:
    return [c for c in trainer.callback_handler.callbacks if isinstance(c, EbbCallback)]


_is_default = False
_defaults: weakref.WeakSet[_DefaultCallback] = weakref.WeakSet()


def _prepare(trainer: Any) -> list[EbbCallback]:
    """Adds a callback unless the user has added one."""
    found = _callbacks(trainer)
    if not found and _is_default:
        trainer.add_callback(_DefaultCallback())
        found = _callbacks(trainer)
    explicit = [c for c in found if not isinstance(c, _DefaultCallback)]
    kept = (explicit or found)[:1]
    for c in found:
        if c not in kept:
            trainer.remove_callback(c)
    for c in kept:
        c._trainer = weakref.ref(trainer)
    return kept


def _hook_train(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[EbbCallback] = []
        try:
            found = _prepare(self)
            if found and _is_resume_wanted(found):
                args, kwargs = _with_resume(self, train, args, kwargs)
        except Exception:
            pass
        try:
            return train(self, *args, **kwargs)
        finally:
            for c in found:
                try:
                    # Closes a training run that ended without on_train_end, for example because of
                    # an exception.
                    c._close(is_clean=False)
                except Exception:
                    pass

    return hooked


def _hook_save(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[EbbCallback] = []
        try:
            found = _callbacks(self)
            bound = inspect.signature(save).bind(self, *args, **kwargs).arguments
            # each trial of a hyperparameter search has its own folder
            folder = self._get_output_dir(bound.get("trial"))
            for c in found:
                c._save_begins(self.args, folder)
        except Exception:
            pass
        try:
            return save(self, *args, **kwargs)
        except Exception:
            # with FSDP and DeepSpeed all ranks save together, so the failure must be raised on all
            # of them
            is_shared = getattr(self, "is_fsdp_enabled", False) or self.is_deepspeed_enabled
            if not all([c._save_failed() for c in found]) or not found or is_shared:
                raise
            _log.warning("ebb: the checkpoint requested by ebb could not be written", exc_info=True)
            return None

    return hooked


def _hook_load(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def hooked(self: Any, resume_from_checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint not in _chosen:
            return load(self, resume_from_checkpoint, *args, **kwargs)
        results: list[Any] = []
        self._issue_warnings_after_load = results.append
        try:
            return load(self, resume_from_checkpoint, *args, **kwargs)
        finally:
            del self._issue_warnings_after_load
            for result in results:
                if not _mend(self, resume_from_checkpoint, result):
                    self._issue_warnings_after_load(result)

    return hooked


def _hook_log(log: Callable[..., Any]) -> Callable[..., Any]:
    # Memory is added before Trainer.log runs. on_log would be too late, because it is called for
    # this callback after it was called for callbacks that write the logs.
    @functools.wraps(log)
    def hooked(self: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            for c in _callbacks(self):
                c._add_memory(logs)
        except Exception:
            pass
        return log(self, logs, *args, **kwargs)

    return hooked


_HOOKS = {
    "train": _hook_train,
    "_save_checkpoint": _hook_save,
    "_load_from_checkpoint": _hook_load,
    "log": _hook_log,
}


def install(default: bool = False) -> None:
    """Installs hooks on the Trainer. If DEFAULT is True, every trainer gets a callback that writes
    no logs, even in scripts that do not use ebb. Repeated calls are harmless."""
    global _is_default
    try:
        from transformers import trainer as module
    # the import can fail, for example if accelerate is not installed
    except Exception as problem:
        _note(f"the Trainer cannot be hooked: {problem}")
        return
    for name, hook in _HOOKS.items():
        method = module.Trainer.__dict__.get(name)
        if method is None:
            _note(f"this version of transformers has no Trainer.{name}, so ebb cannot hook it")
        elif not getattr(method, "_is_ebbs", False):
            hooked = hook(method)
            hooked._is_ebbs = True  # type: ignore[attr-defined]
            _patches.put(module.Trainer, name, hooked)
    if default and not _is_default:
        _is_default = True
        _patches.on_undo("the default callback", _end_default)
        defaults = getattr(module, "DEFAULT_CALLBACKS", None)
        if isinstance(defaults, list):
            defaults.append(_DefaultCallback)
            _patches.on_undo("DEFAULT_CALLBACKS", lambda: defaults.remove(_DefaultCallback))
        for trainer in _referrers.running(module.Trainer):
            _join(trainer)


def _end_default() -> None:
    """Removes or disables all automatically added callbacks. Trainers that are created later get
    none."""
    global _is_default
    _is_default = False
    for added in list(_defaults):
        trainer = added._trainer()
        if trainer is not None:
            _part(trainer.callback_handler, added)
        else:
            _disarm(added)


def _join(trainer: Any) -> None:
    """Adds a callback to training in progress. The list of callbacks is replaced rather than
    changed, because the trainer may be iterating over it."""
    handler = trainer.callback_handler
    if any(isinstance(c, EbbCallback) for c in handler.callbacks):
        return
    added = _LateCallback()
    added._trainer = weakref.ref(trainer)
    handler.callbacks = [*handler.callbacks, added]


def _part(handler: Any, added: _DefaultCallback) -> None:
    handler.callbacks = [c for c in handler.callbacks if c is not added]
    added._close(is_clean=True)


def _disarm(added: Any) -> None:
    """Makes a callback do nothing. Used if its trainer has not begun to train: ebb has no reference
    to such a trainer, so it cannot remove the callback."""
    added.__class__ = TrainerCallback
    # without EbbCallback.__getstate__, the callback could not be pickled with these attributes
    for name in set(vars(added)) - {"_training"}:
        del vars(added)[name]
