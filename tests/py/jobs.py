"""Runs jobs under ebb, and reads their recordings. EBB_BINARY is the path of the program."""

import contextlib
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cmd"))

import commands  # noqa: E402
from commands import ROOT, binary  # noqa: E402

PACKAGE = ROOT / "python"
SHIM = PACKAGE / "ebb" / "_shim"
# Jobs have more time than other commands, because importing torch is slow on a busy machine.
PATIENCE_S = 300

wait_for = functools.partial(commands.wait_for, limit_s=PATIENCE_S)


def environment(changes=None):
    """Returns the environment without variables that would affect the tests, and with CHANGES
    applied. A change to None removes a variable."""
    dropped = ("EBB_", "PYTHONPATH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    env.update({"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"})
    for key, value in (changes or {}).items():
        env.pop(key, None)
        if value is not None:
            env[key] = str(value)
    return env


@contextlib.contextmanager
def listening(monkeypatch):
    """Stands in for ebb: its socket receives the marks of this process."""
    from ebb import _wire

    with tempfile.TemporaryDirectory(dir="/tmp") as short, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"{short}/marks")
        receiver.setblocking(False)
        monkeypatch.setenv("EBB_SOCKET", f"{short}/marks")
        _wire.reset()
        yield receiver
        _wire.reset()


class Run:
    """A finished job with its output, exit status and recording."""

    def __init__(self, result, folder):
        self.stdout, self.stderr, self.status = result.stdout, result.stderr, result.returncode
        self.folder = folder

    def records(self):
        text = subprocess.run([binary(), "export", self.folder, "--jsonl"], env=environment(),
                              stdout=subprocess.PIPE, text=True, check=True,
                              timeout=PATIENCE_S).stdout
        return [json.loads(line) for line in text.splitlines()]

    def marks(self, *kinds, **values):
        """Returns the marks of the given kinds (default: all) that have the given values."""
        found = [r for r in self.records() if r.get("type") == "mark"]
        return [m for m in found if (not kinds or m["kind"] in kinds)
                and all(m.get(key) == value for key, value in values.items())]


def run_under_ebb(folder, name, *arguments, options=(), env=None, **more):
    """Runs a command in FOLDER under ebb until it exits. The run folder is FOLDER/NAME."""
    command = [binary(), "run", "-q", "-d", folder / name, *options, "--", *arguments]
    more = {"cwd": folder, "timeout": PATIENCE_S, **more}
    result = subprocess.run([str(part) for part in command], env=environment(env), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)
    return Run(result, folder / name)
