"""What `ebb run` puts in front of PYTHONPATH: waits for torch, transformers and lightning, and steps
aside for the user's own sitecustomize.

Every Python of the job runs this, old ones too: nothing here may need a new one, and nothing may
cost time before one of those modules is imported.
"""

import os
import sys

_folder = os.path.dirname(__file__)
_names = (
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "transformers.trainer",
    "lightning.pytorch",
    "pytorch_lightning",
)


def _say(sentence):
    if os.environ.get("EBB_VERBOSE") == "1":
        try:
            sys.stderr.write("ebb: %s\n" % sentence)
        except Exception:
            pass  # closed, or never there


class _Package(object):
    """`import ebb` where the user has no ebb: last of all finders, so that it shadows nothing."""

    folder = os.path.dirname(_folder)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "ebb" and path is None:
            return cls.spec("ebb")
        return None

    @classmethod
    def spec(cls, name):
        from importlib.util import spec_from_file_location

        init = os.path.join(cls.folder, "__init__.py")
        return spec_from_file_location(name, init, submodule_search_locations=[cls.folder])

    @classmethod
    def hooks(cls):
        """ebb._hooks of the package that `import ebb` means, if that is this one or another
        version of it; of this one under a private name if it is something of the user's."""
        from importlib import import_module
        from importlib.util import find_spec, module_from_spec

        try:
            places = find_spec("ebb").submodule_search_locations or ()
        except Exception:
            places = ()
        if any(os.path.exists(os.path.join(place, "_hooks.py")) for place in places):
            return import_module("ebb._hooks")
        if "_ebb" not in sys.modules:
            spec = cls.spec("_ebb")
            sys.modules["_ebb"] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
        return import_module("_ebb._hooks")


class _Watcher(object):
    """Finds nothing by itself: lets the others find the modules it waits for, and has them looked
    at once they are loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _names:
            return None
        for finder in sys.meta_path:
            find = None if finder is cls else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                cls.watch(spec)
                return spec
        return None

    @classmethod
    def watch(cls, spec):
        loader = spec.loader
        try:
            load = loader.exec_module

            def exec_module(module):
                try:
                    del loader.exec_module
                except AttributeError:
                    pass
                load(module)
                cls.loaded(spec.name, module)

            loader.exec_module = exec_module
        except Exception as error:
            _say("%s is not watched: %r" % (spec.name, error))

    @classmethod
    def loaded(cls, name, module):
        try:
            _Package.hooks().loaded(name, module)
        except Exception as error:
            _say("no marks from %s: %r" % (name, error))


def _start():
    sys.path[:] = [place for place in sys.path if place != _folder]
    if sys.version_info < (3, 9) or os.environ.get("EBB_SHIM") == "0":
        return
    sys.meta_path.append(_Package)
    if os.environ.get("EBB_SOCKET"):
        sys.meta_path.insert(0, _Watcher)


_start()

# Python imports what it finds next under this name, and reports its errors or its absence, as if
# this file were not here. The reference keeps Python 2 from emptying a module that still runs.
_self = sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
