"""Has modules that the shim waits for looked at once they are loaded.

Loaded by the shim from this file, outside of any package: here it is found out which ebb is
the user's.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Optional

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PRIVATE = "_ebb"


def _say(sentence: str) -> None:
    if os.environ.get("EBB_VERBOSE") == "1":
        try:
            print(f"ebb: {sentence}", file=sys.stderr)
        except Exception:
            pass  # closed, or never there


def package_spec(name: str) -> Optional[ModuleSpec]:
    """This package, as NAME."""
    init = os.path.join(_FOLDER, "__init__.py")
    return spec_from_file_location(name, init, submodule_search_locations=[_FOLDER])


def _hooks() -> ModuleType:
    """ebb._hooks of the package that `import ebb` means, if that is this one or another version of
    it; of this one under a private name if it is something of the user's."""
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


def _loaded(name: str, module: ModuleType) -> None:
    try:
        _hooks().loaded(name, module)
    except Exception as error:
        _say(f"no marks from {name}: {error!r}")


def _watch(spec: ModuleSpec) -> None:
    """Its loader is ours for this one time."""
    loader: Any = spec.loader
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        try:
            del loader.exec_module
        except AttributeError:  # a second watcher around this one was quicker
            pass
        load(module)
        _loaded(spec.name, module)

    loader.exec_module = exec_module


def find_watched(watcher: Any, name: str, path: Any, target: Any) -> Optional[ModuleSpec]:
    """As the finders besides WATCHER find it."""
    for finder in list(sys.meta_path):
        find = None if finder is watcher else getattr(finder, "find_spec", None)
        spec: Optional[ModuleSpec] = find(name, path, target) if find else None
        if spec is not None:
            try:
                _watch(spec)
            except Exception as error:  # a loader that is not as usual
                _say(f"{name} is not watched: {error!r}")
            return spec
    return None
