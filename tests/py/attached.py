"""Stands in for `ebb attach`, inside the process to which tests attach."""

import os
import socket
import struct
import sys
import tempfile
import threading
import time

PATIENCE_S = 120
_HEADER = "=8sIIQiIQQ6I4I"  # the start of struct heap_header, up to is_ended


class Ebb:
    """Receives the marks and heap tables of this process."""

    def __init__(self, library):
        self.library = library
        self.folder = tempfile.mkdtemp(prefix="ebb-attached-", dir="/tmp")
        self.path = os.path.join(self.folder, "s")
        self.marks, self.tables = [], {}
        self._marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._marks.bind(self.path)
        self._heap = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._heap.bind(self.path + ".heap")
        self._heap.listen(64)
        for work in (self._take_marks, self._take_tables):
            threading.Thread(target=work, daemon=True).start()

    def _take_marks(self):
        while True:
            lines = self._marks.recv(1 << 16).decode().split("\n")
            self.marks.append(dict(line.split("=", 1) for line in lines))

    def _take_tables(self):
        while True:
            connection, _ = self._heap.accept()
            with connection:
                hello, (fd,), _, _ = socket.recv_fds(connection, 64, 1)
            pid = struct.unpack_from("=i", hello, 12)[0]  # a worker sends a table of its own
            if pid in self.tables:
                os.close(self.tables[pid])
            self.tables[pid] = fd

    def of_kind(self, *kinds):
        return [m for m in list(self.marks) if m["KIND"] in kinds]

    def wait_for(self, kind, count=1):
        until = time.monotonic() + PATIENCE_S
        while len(self.of_kind(kind, "refused")) < count:
            assert time.monotonic() < until, (kind, self.marks[-3:])
            time.sleep(0.001)
        return self.of_kind(kind, "refused")[-1]

    def start(self, **more):
        from ebb import _attach

        _attach.start(self.path, self.folder, self.library, **more)

    def stop(self):
        from ebb import _attach

        _attach.stop()

    def python_state(self):
        """Returns the table's state of Python, and whether small objects are counted."""
        table = self.tables[os.getpid()]
        values = struct.unpack(_HEADER, os.pread(table, struct.calcsize(_HEADER), 0))
        return values[-3], values[-2]


def state():
    """Returns what a detach must restore."""
    names = {
        "torch.utils.data.dataloader": ("DataLoader.__iter__", "_BaseDataLoaderIter.__next__"),
        "torch.optim.optimizer": ("_global_optimizer_post_hooks",),
        "transformers.trainer": ("Trainer.train", "Trainer._save_checkpoint", "Trainer.log",
                                 "Trainer._load_from_checkpoint", "DEFAULT_CALLBACKS"),
        "lightning.pytorch": ("Trainer.fit", "Trainer.save_checkpoint"),
        "tqdm.std": ("tqdm.update", "tqdm.close"),
    }
    found = {}
    for module, paths in names.items():
        for path in paths if module in sys.modules else ():
            value = sys.modules[module]
            for part in path.split("."):
                value = getattr(value, part)
            found[path] = list(value) if isinstance(value, (list, dict)) else value
    found["finders"] = list(sys.meta_path)
    found["environment"] = dict(os.environ)
    found["threads"] = sorted(t.name for t in threading.enumerate() if "ebb" in t.name)
    with open("/proc/self/maps") as maps:
        found["tables"] = sum("memfd:ebb-heap" in line for line in maps)
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the descriptor that lists the others
            continue
    found["sockets"] = sum(link.startswith(("socket:", "anon_inode:")) for link in fds.values())
    return found


def state_after(before):
    """Returns the state once it equals BEFORE, or after a while: the thread that detaches reports
    before it ends."""
    until = time.monotonic() + PATIENCE_S
    while state() != before and time.monotonic() < until:
        time.sleep(0.01)
    return state()
