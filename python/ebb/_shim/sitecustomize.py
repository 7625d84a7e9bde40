"""What `ebb run` puts in front of PYTHONPATH: waits for torch, transformers and lightning, and
steps aside for the user's own sitecustomize.

Every Python of the job runs this, old ones too, and often without a cache of its bytecode: nothing
here may need a new Python, and what can wait for one of those modules is in ebb/_watch.py.
"""
# Annotations need a new Python.
# mypy: ignore-errors

import os
import sys

_folder = os.path.dirname(__file__)


class _Watcher(object):
    """First of all finders. Finds nothing by itself, but sees what is looked for."""

    names = (
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torchdata.stateful_dataloader.stateful_dataloader",
        "transformers.trainer",
        "lightning.pytorch",
        "pytorch_lightning",
    )

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        watch = _watch() if name in cls.names else None
        return watch.find_watched(cls, name, path, target) if watch else None


class _Package(object):
    """`import ebb` where the user has no ebb: last of all finders, so that it shadows nothing."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        watch = _watch() if name == "ebb" and path is None else None
        return watch.package_spec("ebb") if watch else None


def _watch():
    if "_ebb_watch" in sys.modules:
        return sys.modules["_ebb_watch"]
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        file = os.path.join(os.path.dirname(_folder), "_watch.py")
        spec = spec_from_file_location("_ebb_watch", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception:  # an installation that was removed under a job that runs
        return None
    sys.modules["_ebb_watch"] = module
    return module


sys.path[:] = [place for place in sys.path if place != _folder]
if sys.version_info >= (3, 9) and os.environ.get("EBB_SHIM") != "0":
    sys.meta_path.append(_Package)
    if os.environ.get("EBB_SOCKET"):
        sys.meta_path.insert(0, _Watcher)

# Python imports what it finds next under this name, and reports its errors or its absence, as if
# this file were not here. The reference keeps Python 2 from emptying a module that still runs.
_self = sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
