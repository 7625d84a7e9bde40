"""`ebb run` puts this file's folder at the front of PYTHONPATH. This file waits until torch or
another framework is imported, and runs the user's own sitecustomize.

Every Python interpreter of the job runs this file, even old versions, and often without cached
bytecode. Therefore nothing here may require a new Python version, and code that is needed only
after a framework is imported is in ebb/_watch.py.
"""
# Old Python versions do not support annotations, so mypy has nothing to check here.
# mypy: ignore-errors

import os
import sys

_folder = os.path.dirname(__file__)


class _Watcher(object):
    """An import finder at the first position of sys.meta_path. It finds no modules, but sees which
    modules are imported."""

    names = (
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torchdata.stateful_dataloader.stateful_dataloader",
        "transformers.trainer",
        "lightning.pytorch",
        "pytorch_lightning",
        "deepspeed.runtime.engine",
        "keras.src.callbacks",
        "keras.src.models.model",
        "optax._src.update",
        "xgboost.core",
        "lightgbm.basic",
        "sklearn.base",
        "tqdm.std",
    )

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        watch = _watch() if name in cls.names else None
        return watch.find_watched(cls, name, path, target) if watch else None


class _Package(object):
    """Makes `import ebb` work if the user has not installed ebb. It is the last import finder, so
    every other module named ebb takes precedence."""

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
    except Exception:  # ebb was uninstalled while the job was running
        return None
    sys.modules["_ebb_watch"] = module
    return module


def _resident_bytes():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except Exception:
        return 0


class _Memory(object):
    """A thread that monitors this process's allocators and growing containers. It ends before each
    fork, because Python warns about threads during a fork."""

    bell = None  # a lock that ends the thread when it is released
    task = None  # thread id in the kernel, once the thread runs

    @classmethod
    def start(cls):
        try:
            from _thread import allocate_lock, start_new_thread

            bell = allocate_lock()
            bell.acquire()
            cls.task = None
            start_new_thread(cls.run, (bell,))
            cls.bell = bell
        except Exception:  # the thread could not be started
            pass

    @classmethod
    def run(cls, bell):
        from _thread import get_native_id

        cls.task = get_native_id()
        is_asked = False
        while not bell.acquire(True, 2.0):
            if "threading" in sys.modules:
                watch = _watch()
                if watch:
                    watch.follow_memory(bell)
                return
            if not is_asked and _resident_bytes() >= 48 << 20:
                is_asked = True
                cls.import_threading()

    @classmethod
    def import_threading(cls):
        """Makes the main thread import threading. Otherwise a thread of ebb might be the first to
        import it; Python would then treat that thread as the main thread and wait for it at
        exit."""
        try:
            import ctypes

            def call(_):
                try:
                    import threading  # noqa: F401
                except Exception:
                    pass
                return 0

            cls.call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
            ctypes.pythonapi.Py_AddPendingCall(cls.call, None)
        except Exception:  # this Python has no ctypes
            pass

    @classmethod
    def before_fork(cls):
        bell, cls.bell = cls.bell, None
        if bell:
            bell.release()
            cls.wait_for_end()

    @classmethod
    def wait_for_end(cls):
        """Waits briefly until the kernel has removed the thread."""
        import time

        until = time.monotonic() + 0.1
        while cls.task is None or os.path.exists("/proc/self/task/%d" % cls.task):
            if time.monotonic() >= until:
                break
            time.sleep(0.0001)


sys.path[:] = [place for place in sys.path if place != _folder]
if sys.version_info >= (3, 9) and os.environ.get("EBB_SHIM") != "0":
    sys.meta_path.append(_Package)
    if os.environ.get("EBB_SOCKET"):
        sys.meta_path.insert(0, _Watcher)
        if os.environ.get("EBB_KEEPERS") != "0" or os.environ.get("EBB_TRUTH") != "0":
            _Memory.start()
            os.register_at_fork(before=_Memory.before_fork, after_in_parent=_Memory.start)

# Removes this module from sys.modules, so that Python imports the next sitecustomize, or reports
# that there is none, as if this file did not exist. The variable keeps the module alive, because
# Python 2 would otherwise clear the module while its code runs.
_self = sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
