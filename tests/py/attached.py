"""Does the work of `ebb attach` in tests, inside the process to which ebb attaches."""

import itertools
import os
import socket
import struct
import sys
import tempfile
import threading
import time

PATIENCE_S = 120
_HEADER = "=8sIIQiIQQ6I4I"  # layout of struct heap_header, up to is_ended


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
            pid = struct.unpack_from("=i", hello, 12)[0]  # workers send tables of their own
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
        """Returns two fields of the heap table: the state of the Python profiler, and whether small
        Python objects are counted."""
        table = self.tables[os.getpid()]
        values = struct.unpack(_HEADER, os.pread(table, struct.calcsize(_HEADER), 0))
        return values[-3], values[-2]


# ---- state that a detach must restore ----

# relocation types of GOT slots
_GOT = {"x86_64": (1, 6, 7), "aarch64": (257, 1025, 1026)}[os.uname().machine]
_DYNAMIC, _RELA, _RELASZ, _JMPREL, _PLTRELSZ = 2, 7, 8, 23, 2


class _Memory:
    def __init__(self):
        self._fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, address, size):
        return os.pread(self._fd, size, address)

    def close(self):
        os.close(self._fd)


def _mappings():
    """Returns (start, end, permissions, offset, path) of each mapping of a file."""
    with open("/proc/self/maps") as maps:
        lines = [line.split(None, 5) for line in maps]
    found = []
    for fields in lines:
        path = fields[5].rstrip("\n") if len(fields) == 6 else ""
        if path.startswith("/") and not path.startswith(("/dev/", "/memfd:")):
            start, end = (int(n, 16) for n in fields[0].split("-"))
            found.append((start, end, fields[1], int(fields[2], 16), path))
    return found


def _module_slots(memory, base):
    """Yields address and relocation type of the GOT slots of the ELF file mapped at BASE."""
    head = memory.read(base, 64)
    if head[:5] != b"\x7fELF\x02":
        return
    (kind,), (at,) = struct.unpack_from("=H", head, 16), struct.unpack_from("=Q", head, 32)
    size, count = struct.unpack_from("=HH", head, 54)
    parts = list(struct.iter_unpack("=IIQQQQQQ", memory.read(base + at, size * count)))
    bias = base if kind == 3 else 0
    dynamic = next((p for p in parts if p[0] == _DYNAMIC), None)
    if dynamic is None:
        return
    entries = struct.iter_unpack("=QQ", memory.read(bias + dynamic[3], dynamic[6]))
    tags = dict(itertools.takewhile(lambda entry: entry[0] != 0, entries))
    for table, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        if tags.get(table) and tags.get(length):
            start = tags[table] + (bias if tags[table] < bias else 0)
            for offset, info, _ in struct.iter_unpack("=QQq", memory.read(start, tags[length])):
                if info >> 32 and info & 0xFFFFFFFF in _GOT:
                    yield bias + offset, info & 0xFFFFFFFF


def slots():
    """Returns the value of each GOT slot of each loaded object. Omits slots of functions that have
    not been called yet, because the dynamic linker binds them at the first call."""
    memory, found, mappings = _Memory(), {}, _mappings()
    ends = {}
    for start, end, _, _, path in mappings:
        ends[path] = max(end, ends.get(path, 0))
    for start, _, _, offset, path in mappings:
        if offset or "libebb-heap" in path:
            continue
        for address, kind in _module_slots(memory, start):
            value = struct.unpack("=Q", memory.read(address, 8))[0]
            if kind != _GOT[2] or not start <= value < ends[path]:
                found[path, address] = value
    memory.close()
    return found


def protections():
    """Returns the protection of each mapping of a file."""
    return {(start, end): mode for start, end, mode, _, path in _mappings()
            if "libebb-heap" not in path}


def python_allocators():
    """Returns the functions of Python's three memory allocators."""
    import ctypes

    found = []
    for domain in range(3):
        pointers = (ctypes.c_void_p * 5)()
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(pointers))
        found.append(list(pointers))
    return found


# module variables that change while the job runs: started workers, and the module's namespace
_OF_THE_JOB = ("_finalizer_registry", "__dict__", "__builtins__")


def _is(value, *kinds):
    """Like isinstance, but does not read __class__, because a read causes warnings from
    deprecated objects."""
    return issubclass(type(value), kinds)


def _is_hookable(value):
    return callable(value) or _is(value, property, classmethod, staticmethod)


def objects():
    """Returns all functions, methods and classes in modules, in lists and dicts of modules, and in
    classes, by name such as "module.list[3]"."""
    found, classes = {}, {}
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] in ("ebb", "attached", "__main__"):
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if _is(value, type):
                classes[id(value)] = value
            if _is_hookable(value):
                found[f"{name}.{key}"] = value
            elif _is(value, list, dict) and len(value) < 1000 and key not in _OF_THE_JOB:
                elements = dict.values(value) if _is(value, dict) else value
                for i, element in enumerate(list(elements)):
                    if _is_hookable(element):
                        found[f"{name}.{key}[{i}]"] = element
    for value in classes.values():
        for key, member in list(vars(value).items()):
            if _is_hookable(member):
                found[f"{value.__module__}.{value.__qualname__}.{key}"] = member
    return found


def state():
    """Returns the state that a detach restores. The state may be restored a short time after the
    detach has been reported."""
    found = {"finders": list(sys.meta_path), "environment": dict(os.environ)}
    found["threads"] = sorted(t.name for t in threading.enumerate() if "ebb" in t.name)
    with open("/proc/self/maps") as maps:
        found["tables"] = sum("memfd:ebb-heap" in line for line in maps)
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the descriptor used to list the folder
            continue
    found["sockets"] = sum(link.startswith(("socket:", "anon_inode:")) for link in fds.values())
    return found


class Hooked:
    """A snapshot of what an attach can change in this process: GOT slots, memory protections,
    allocators and Python objects."""

    def __init__(self):
        self.slots, self.protections = slots(), protections()
        self.allocators, self.objects = python_allocators(), objects()

    def changes(self, before):
        """Returns the names of all things that have changed since BEFORE, except objects that were
        loaded later.
        """
        found = [f"{path}+{address:x}" for (path, address), value in before.slots.items()
                 if self.slots.get((path, address)) != value]
        found += [f"{start:x}-{end:x} {mode}" for (start, end), mode in before.protections.items()
                  if self.protections.get((start, end)) != mode]
        found += [place for place, value in before.objects.items()
                  if self.objects.get(place) is not value]
        found += ["allocators"] * (self.allocators != before.allocators)
        return found


def state_after(before):
    """Waits until the state equals BEFORE, and returns the state. The detach is reported shortly
    before its thread has ended."""
    until = time.monotonic() + PATIENCE_S
    while state() != before and time.monotonic() < until:
        time.sleep(0.01)
    return state()
