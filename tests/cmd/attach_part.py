"""Makes a minimal installation of ebb whose module ebb._attach is a fake that records each call. With it, the tests of
`ebb attach` need only the ebb program, not ebb's Python package."""

import pathlib
import shutil

from commands import ROOT, binary

PART = '''
import os, socket as sockets

_socket = None
NOTES = {notes!r}


def _note(word):
    with open(NOTES, "a") as f:
        f.write(word + " " + str(os.getpid()) + "\\n")


def _send(kind):
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM) as s:
        s.sendto(("KIND=%s\\nPID=%d\\nHEAP=1\\n" % (kind, os.getpid())).encode(), _socket)


def start(socket, run_dir, library, heap_interval):
    global _socket
    _note("start")
    _socket = socket
    _send("attached")


def is_attached():
    return _socket is not None


def block_signals():
    pass


def stop():
    global _socket
    _note("stop")
    try:
        _send("detached")
    except OSError:
        pass
    _socket = None
'''


class Installation:
    """A minimal installation: a copy of the ebb program and the fake package."""

    def __init__(self, folder):
        self.program = folder / "bin" / "ebb"
        self.notes_file = folder / "notes"
        package = folder / "share" / "ebb" / "python" / "ebb"
        (package / "_shim").mkdir(parents=True)
        self.program.parent.mkdir()
        shutil.copy(binary(), self.program)
        (package / "_shim" / "sitecustomize.py").write_text("")
        (package / "__init__.py").write_text("")
        (package / "_attach.py").write_text(PART.format(notes=str(self.notes_file)))
        shutil.copy(ROOT / "python" / "ebb" / "_optin.py", package)
        self.packages = package.parent
        self.notes_file.touch()
        self.notes_file.chmod(0o666)

    def notes(self):
        """Returns the recorded calls: ["start PID", "stop PID", …]."""
        return pathlib.Path(self.notes_file).read_text().splitlines()
