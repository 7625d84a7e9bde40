"""Hooks for frameworks other than torch. If a package does not have the expected structure, its
hook raises an exception and changes nothing."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from types import CodeType, ModuleType
from typing import Any, Callable, Optional

from . import _patches, _wire
from ._hooks import quiet, the_tracker, tracked

_CODES_MAX = 256


def caller(*skipped: str) -> Any:
    """Returns the innermost stack frame outside of this package and of the SKIPPED packages, or
    None."""
    packages = (__name__.partition(".")[0], *skipped)
    frame: Any = sys._getframe(1)
    while frame and str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
        frame = frame.f_back
    return frame


def _enter() -> bool:
    try:
        return the_tracker().enter()
    except Exception:
        return False


def _leave() -> None:
    try:
        the_tracker().leave()
    except Exception:
        pass


def _counted(
    method: Callable[..., Any], source: str, count_of: Optional[Callable[[Any], int]] = None
) -> Callable[..., Any]:
    """Wraps METHOD so that each successful call is counted as one step of its object. Nested calls
    are not counted. If COUNT_OF is given, only calls that increase COUNT_OF(object) are counted.
    """
    on_step = tracked(source, "on_step")

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_outer = _enter()
        before = count_of(self) if count_of else 0
        try:
            result = method(self, *args, **kwargs)
        finally:
            if is_outer:
                _leave()
        if is_outer and (count_of is None or count_of(self) > before):
            on_step(self, source)
        return result

    return wrapper


# ---- gradient boosting ----


def hook_xgboost(module: ModuleType) -> None:
    booster: Any = module.Booster  # type: ignore[attr-defined]
    for name in ("update", "boost"):
        _patches.put(booster, name, _counted(getattr(booster, name), "xgboost"))


def hook_lightgbm(module: ModuleType) -> None:
    booster: Any = module.Booster  # type: ignore[attr-defined]
    _patches.put(booster, "update", _counted(booster.update, "lightgbm"))


# ---- scikit-learn ----


def hook_sklearn(module: ModuleType) -> None:
    """Wraps the decorator that scikit-learn applies to all fit methods."""
    decorate = module._fit_context  # type: ignore[attr-defined]

    def around(method: Callable[..., Any], decorated: Callable[..., Any]) -> Callable[..., Any]:
        return _counted_here(decorated) if method.__name__ == "partial_fit" else decorated

    @functools.wraps(decorate)
    def _fit_context(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        decorator = decorate(*args, **kwargs)
        return lambda method: around(method, decorator(method))

    _patches.put(module, "_fit_context", _fit_context)


def is_worker() -> bool:
    """Returns True if this process was started by multiprocessing."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _counted_here(method: Callable[..., Any]) -> Callable[..., Any]:
    """Calls in worker processes are not counted, because workers fit parts of the same model."""
    home, counted = os.getpid(), _counted(method, "sklearn")

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = counted if _wire.pid() == home and not is_worker() else method
        return call(self, *args, **kwargs)

    return wrapper


# ---- DeepSpeed ----


def hook_deepspeed(module: ModuleType) -> None:
    """Counts steps of the DeepSpeed engine, because ZeRO calls an optimizer's step once per group
    of parameters."""
    engine: Any = module.DeepSpeedEngine  # type: ignore[attr-defined]
    counted = _counted(engine.step, "deepspeed", lambda e: int(getattr(e, "global_steps", 0)))
    _patches.put(engine, "step", counted)


# ---- Keras ----


class _Epoch:
    """Stands for a Keras data loader and its iterator in calls of the tracker."""

    __slots__ = ("steps", "batches", "__weakref__")

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.batches = 0

    def __len__(self) -> int:
        return int(self.steps)


class _Keras:
    """A Keras callback that sends training events to the tracker."""

    def __init__(self) -> None:
        self._epoch: Optional[_Epoch] = None

    def on_epoch_begin(self, callbacks: Any, *_: Any) -> None:
        self._epoch = e = _Epoch((getattr(callbacks, "params", None) or {}).get("steps"))
        the_tracker().on_iter(e, e, False)

    def on_train_batch_end(self, callbacks: Any, batch: int, *_: Any) -> None:
        t, e = the_tracker(), self._epoch
        if e is None:
            return
        model = getattr(callbacks, "model", None) or callbacks
        # with steps_per_execution, one call covers several batches; the last call may cover fewer
        batches = batch + 1 if e.steps is None else min(batch + 1, int(e.steps))
        while e.batches < batches:
            e.batches += 1
            t.on_batch(e)
            t.on_step(model, "keras")

    def on_epoch_end(self, *_: Any) -> None:
        e, self._epoch = self._epoch, None
        if e is not None:
            the_tracker().on_end(e)

    def on_test_end(self, *_: Any) -> None:
        the_tracker().on_eval()


def _after(method: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        then(self, *args)
        return result

    return wrapper


def hook_keras_fit(module: ModuleType) -> None:
    callbacks: Any = module.CallbackList  # type: ignore[attr-defined]
    keras = _Keras()
    names = ("on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_test_end")
    methods = {name: getattr(callbacks, name) for name in names}
    for name, method in methods.items():
        then = getattr(keras, name)
        hooked = _after(method, quiet("keras", lambda then=then: then))
        _patches.put(callbacks, name, hooked)


def hook_keras_model(module: ModuleType) -> None:
    model: Any = module.Model  # type: ignore[attr-defined]
    _patches.put(model, "train_on_batch", _counted(model.train_on_batch, "keras"))


# ---- JAX ----


class _Updates:
    """Stands for a JAX optimizer in calls of the tracker."""

    __slots__ = ("__weakref__",)


def _code_of(function: Any) -> Optional[CodeType]:
    """Returns the code object of FUNCTION, removing at most eight wrappers."""
    for _ in range(8):
        for name in ("__wrapped__", "func", "__func__"):
            inner = getattr(function, name, None)
            if callable(inner):
                function = inner
                break
    return getattr(function, "__code__", None)


class _Jax:
    """Counts the steps of loops that use optax.apply_updates. Most loops use it inside a compiled
    step function. Python then runs apply_updates only once, while JAX traces the step function.
    Therefore the steps are counted in JAX's post hook, which JAX runs after each call of a compiled
    function except the first call, during which the function is compiled."""

    def __init__(self) -> None:
        self._post_hook: Any = None
        self._before: Any = None  # post hook that was installed before this one
        # one entry for each source line that calls apply_updates
        self._eager: dict[tuple[CodeType, int], _Updates] = {}
        # code objects of traced functions that call apply_updates
        self._traced: set[CodeType] = set()
        # compiled functions; the value is None for functions that do not call apply_updates
        self._compiled: "weakref.WeakKeyDictionary[Any, Optional[_Updates]]"
        self._compiled = weakref.WeakKeyDictionary()
        self._install = quiet("steps compiled by jax", lambda: self._set_post_hook)

    def on_apply(self, updates: Any) -> None:
        jax: Any = sys.modules["jax"]
        leaves = jax.tree_util.tree_leaves(updates)
        frame = caller()
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            self._on_eager(frame)
            return
        while frame:
            if len(self._traced) < _CODES_MAX:
                self._traced.add(frame.f_code)
            frame = frame.f_back
        self._compiled.clear()
        if self._post_hook is None:
            self._install()

    def _on_eager(self, frame: Any) -> None:
        where = (frame.f_code, frame.f_lineno)
        if len(self._eager) >= _CODES_MAX:
            self._eager.clear()
        the_tracker().on_step(self._eager.setdefault(where, _Updates()), "jax")

    def _set_post_hook(self) -> None:
        api: Any = sys.modules["jax._src.api"]
        state = api._post_hook_state
        self._before = state.get_global()
        on_call = quiet("steps compiled by jax", lambda: self._on_call)

        def post_hook(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            on_call(function)
            if self._before is not None:
                self._before(function, args, kwargs, output)

        state.set_global(post_hook)
        self._post_hook = post_hook
        before = self._before
        _patches.on_undo("jax's post hook", lambda: state.set_global(before))

    def _on_call(self, function: Any) -> None:
        known = self._compiled.get(function, self)
        if known is self:
            has_update = _code_of(function) in self._traced
            known = self._compiled[function] = _Updates() if has_update else None
            if known is not None:
                # counts the first call too: it compiled the function, so JAX did not run the post
                # hook
                the_tracker().on_step(known, "jax")
        if known is not None:
            the_tracker().on_step(known, "jax")


def hook_optax(module: ModuleType) -> None:
    apply_updates = module.apply_updates  # type: ignore[attr-defined]
    on_apply = quiet("optax", lambda: _Jax().on_apply)

    @functools.wraps(apply_updates)
    def wrapper(params: Any, updates: Any) -> Any:
        on_apply(updates)
        return apply_updates(params, updates)

    # the module optax may already have its own reference to apply_updates
    for place in (module, sys.modules.get("optax")):
        if getattr(place, "apply_updates", None) is apply_updates:
            _patches.put(place, "apply_updates", wrapper)
