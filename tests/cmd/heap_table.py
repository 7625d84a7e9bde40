"""Receives and reads the shared heap table of a profiled process."""

import array
import collections
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess

CODES, SITES, NODES, LIVE, MODULES, TEXT_BYTES = 16384, 16384, 65536, 32768, 1024, 2 << 20
PYTHON = 1 << 63
HELLO = struct.Struct("=8sIiQ")
# First part of the header: it ends with the number of complete entries of each kind.
HEADER = struct.Struct("=8sIIQiIQQ IIIII I IIII")
# Second part of the header: interval, number of samples, number of samples that ended, nanoseconds spent in hooks,
# dropped samples by reason, and bytes in Python's arenas.
COUNTERS = struct.Struct("=QQQQ11QQ")
DROPS = "nodes sites live thinned codes text modules unwind nested stale gpu".split()
CODE = struct.Struct("=IIIIIIII")
SITE = struct.Struct("=IIQQQ")
NODE = struct.Struct("=QII")
SAMPLE = struct.Struct("=QQIIII")
MODULE = struct.Struct("=IIQQQ24s")
PYTHON_STATES = ["none", "ok", "version", "check", "free-threaded"]

Code = collections.namedtuple("Code", "file name lines first_line")
Live = collections.namedtuple("Live", "size site interval kind")


class Table:
    """The contents of the memfd DESCRIPTOR, copied anew at each access."""

    def __init__(self, descriptor):
        self.size = os.fstat(descriptor).st_size
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        self.is_sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & seals == seals
        self.map = mmap.mmap(descriptor, self.size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(descriptor)
        self.modules_at = 4096
        self.codes_at = self.modules_at + MODULES * MODULE.size
        self.sites_at = self.codes_at + CODES * CODE.size
        self.nodes_at = self.sites_at + SITES * SITE.size
        self.live_at = self.nodes_at + NODES * NODE.size
        self.text_at = self.live_at + LIVE * SAMPLE.size
        assert self.text_at + TEXT_BYTES <= self.size

    def header(self):
        fields = HEADER.unpack_from(self.map, 0)
        assert fields[0] == b"EBBHEAP\n"
        interval, samples, ends, spent_ns, *drops, arena_bytes = COUNTERS.unpack_from(self.map, HEADER.size)
        return {
            "version": fields[1],
            "table_bytes": fields[3],
            "pid": fields[4],
            "base_interval": fields[7],
            "interval": interval,
            "samples": samples,
            "ends": ends,
            "spent_ns": spent_ns,
            "drops": dict(zip(DROPS, drops)),
            "modules": fields[8],
            "codes": fields[9],
            "nodes": fields[10],
            "sites": fields[11],
            "live": fields[12],
            "python_version": fields[14],
            "python_state": PYTHON_STATES[fields[15]],
            "python_small": fields[16] == 1,
            "python_arena_bytes": arena_bytes,
            "is_ended": fields[17] == 1,
        }

    def failures(self):
        """Returns the number of failed GPU requests, and the sequence number of the first failure that is stored."""
        # Layout: allocated_bytes, gpu_interval, number of failures, 16 GPU entries of 56 bytes, first stored failure.
        at = HEADER.size + COUNTERS.size + 16
        count, = struct.unpack_from("=Q", self.map, at)
        return count, struct.unpack_from("=I", self.map, at + 8 + 16 * 56)[0]

    def text(self, at, length):
        return self.map[self.text_at + at : self.text_at + at + length]

    def module(self, word):
        """Returns the path of the module (program or library) of a native frame."""
        index = word >> 48 & 0x7FFF
        return self.module_path(index - 1) if index else ""

    def code(self, index):
        f = CODE.unpack_from(self.map, self.codes_at + index * CODE.size)
        return Code(
            os.fsdecode(self.text(f[0], f[1])),
            self.text(f[2], f[3]).decode(),
            self.text(f[4], f[5]),
            f[6],
        )

    def module_path(self, index):
        at, length = struct.unpack_from("=II", self.map, self.modules_at + index * MODULE.size)
        return os.fsdecode(self.text(at, length))

    def stack(self, site):
        """Returns the encoded frames of a site, innermost first."""
        words = []
        node = SITE.unpack_from(self.map, self.sites_at + site * SITE.size)[0]
        while node:
            word, node, _ = NODE.unpack_from(self.map, self.nodes_at + node * NODE.size)
            words.append(word)
        return words

    def live(self):
        samples = []
        for i in range(self.header()["live"]):
            p, size, site, _, interval, kind = SAMPLE.unpack_from(
                self.map, self.live_at + i * SAMPLE.size
            )
            if p:
                samples.append(Live(size, site, interval * 64, kind & 15))
        return samples

    def python_stacks(self, python, sites):
        """Returns, for each site, (file, qualified name, line) of its Python frames, innermost first. PYTHON is an
        interpreter of the Python version that wrote the table."""
        words = {site: [word for word in self.stack(site) if word & PYTHON] for site in sites}
        wanted = sorted({word for stack in words.values() for word in stack})
        codes = [self.code(word >> 32 & 0x7FFFFFFF) for word in wanted]
        lines = lines_of(python, codes, [word & 0xFFFFFFFF for word in wanted])
        frames = {
            word: (code.file, code.name, line)
            for word, code, line in zip(wanted, codes, lines)
        }
        return {site: [frames[word] for word in stack] for site, stack in words.items()}


# Line tables are encoded differently in each Python version, so PYTHON decodes them.
LINES_PROGRAM = """
import dis, json, sys
def line_of(lines, first, instruction):
    code = line_of.__code__
    if sys.version_info < (3, 10):
        code = code.replace(co_lnotab=lines, co_firstlineno=first, co_code=bytes(1 << 16))
        starts = [line for at, line in dis.findlinestarts(code) if at <= instruction]
        return starts[-1] if starts else first
    code = code.replace(co_linetable=lines, co_firstlineno=first)
    return next((l for at, end, l in code.co_lines() if at <= instruction < end), None)
wanted = json.load(sys.stdin)
json.dump([line_of(bytes.fromhex(t), first, at) for t, first, at in wanted], sys.stdout)
"""


def lines_of(python, codes, instructions):
    wanted = [
        (code.lines.hex(), code.first_line, at) for code, at in zip(codes, instructions)
    ]
    result = subprocess.run([python, "-c", LINES_PROGRAM], input=json.dumps(wanted),
                            stdout=subprocess.PIPE, encoding="utf-8", timeout=60, check=True)
    return json.loads(result.stdout)


def with_filters(settings):
    """Returns the value that ebb would write to EBB_HEAP: SETTINGS and the number of this process's seccomp filters."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    filters = int(status.get("Seccomp_filters", status.get("Seccomp", "0") != "0"))
    return f"{settings},filters={filters}" if filters and settings != "0" else settings


class Receiver:
    """The socket to which profiled processes send their heap tables."""

    def __init__(self, folder):
        self.path = str(folder / "sock")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.path + ".heap")
        self.socket.listen(64)

    def close(self):
        self.socket.close()

    def receive(self, timeout_s):
        """Receives the next heap table; returns (pid of the sender, table)."""
        self.socket.settimeout(timeout_s)
        connection, _ = self.socket.accept()
        with connection:
            connection.settimeout(timeout_s)
            space = socket.CMSG_SPACE(array.array("i", [0]).itemsize)
            message, ancillary, _, _ = connection.recvmsg(HELLO.size, space)
        magic, version, pid, _ = HELLO.unpack(message)
        assert (magic, version) == (b"EBBHEAP\n", 2)
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        assert len(descriptors) == 1
        return pid, Table(descriptors[0])
