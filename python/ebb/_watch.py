"""Calls the hooks of each module that the shim waits for, once the module has been imported. The
shim loads this file outside of any package, so the code here must find the ebb package that the
program uses.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Callable, Optional

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PRIVATE = "_ebb"


def _say(sentence: str) -> None:
    if os.environ.get("EBB_VERBOSE") == "1":
        try:
            print(f"ebb: {sentence}", file=sys.stderr)
        except Exception:
            pass  # standard error is closed or missing


def package_spec(name: str) -> Optional[ModuleSpec]:
    """Returns an import spec that loads this package under NAME."""
    init = os.path.join(_FOLDER, "__init__.py")
    return spec_from_file_location(name, init, submodule_search_locations=[_FOLDER])


def _hooks() -> ModuleType:
    """Returns the module ebb._hooks of the package that `import ebb` finds, in whatever version. If
    that package is unrelated to this project or missing, returns the module next to this file,
    loaded under a private name."""
    try:
        found = find_spec("ebb")
    except Exception:
        found = None
    places = (found.submodule_search_locations if found else None) or ()
    if any(os.path.exists(os.path.join(place, "_hooks.py")) for place in places):
        return import_module("ebb._hooks")
    if _PRIVATE not in sys.modules:
        spec = package_spec(_PRIVATE)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[_PRIVATE] = module
        spec.loader.exec_module(module)
    return import_module(f"{_PRIVATE}._hooks")


# minimum resident memory for a process to be monitored
_WORTH_BYTES = 48 << 20


def follow_memory(bell: Any) -> None:
    """Monitors the memory of this process in the calling thread until BELL is released."""
    try:
        import signal

        # signals are blocked in this thread, so that they interrupt system calls of the main thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        page = os.sysconf("SC_PAGE_SIZE")
        while True:
            with open("/proc/self/statm", "rb") as f:
                if int(f.read().split()[1]) * page >= _WORTH_BYTES:
                    break
            if bell.acquire(True, 2.0):
                return
        import_module(_hooks().__package__ + "._follow").run(bell)
    except Exception as error:
        _say(f"no thread reads the memory of this process: {error!r}")


def _loaded(name: str, module: ModuleType) -> None:
    try:
        _hooks().loaded(name, module)
    except Exception as error:
        _say(f"no marks from {name}: {error!r}")


def _watch(spec: ModuleSpec, loaded: Callable[[str, ModuleType], Any]) -> None:
    """Makes the module's loader call LOADED after this import."""
    loader: Any = spec.loader
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        try:
            del loader.exec_module
        except AttributeError:  # another watcher has already removed the wrapper
            pass
        load(module)
        loaded(spec.name, module)

    loader.exec_module = exec_module


def find_watched(
    watcher: Any,
    name: str,
    path: Any,
    target: Any,
    loaded: Callable[[str, ModuleType], Any] = _loaded,
) -> Optional[ModuleSpec]:
    """Finds the module using all finders except WATCHER."""
    for finder in list(sys.meta_path):
        find = None if finder is watcher else getattr(finder, "find_spec", None)
        spec: Optional[ModuleSpec] = find(name, path, target) if find else None
        if spec is not None:
            try:
                _watch(spec, loaded)
            except Exception as error:  # the loader cannot be wrapped
                _say(f"{name} cannot be watched: {error!r}")
            return spec
    return None
