"""A cgroup with a memory limit, v1 or v2, for measurements and tests."""

import os
import re
import time


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def places():
    """Returns a list of (path, is v2): groups in which a child group could be created, our own group first."""
    for line in read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        is_v2 = controllers == ""
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        top = "/sys/fs/cgroup" + ("" if is_v2 else "/memory")
        if is_v2 and not os.path.exists(f"{top}/cgroup.controllers"):
            continue
        while True:
            yield top + path.rstrip("/"), is_v2
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


class Cgroup:
    """A cgroup with a memory limit. Its parent is our own cgroup or the nearest ancestor in which a cgroup can be
    created. Raises OSError if no ancestor permits that."""

    made = 0

    def __init__(self, limit):
        Cgroup.made += 1
        self.folder = None
        for above, is_v2 in places():
            folder = f"{above}/bench-guard-{os.getpid()}-{Cgroup.made}"
            try:
                if is_v2 and "memory" not in read_text(f"{above}/cgroup.subtree_control").split():
                    write_text(f"{above}/cgroup.subtree_control", "+memory")
                os.mkdir(folder)
            except OSError:
                continue
            self.folder, self.is_v2 = folder, is_v2
            try:
                self.limit(limit)
                return
            except OSError:
                self.close()
        raise OSError("no cgroup can be made here")

    def limit(self, limit):
        if not self.is_v2:
            write_text(f"{self.folder}/memory.limit_in_bytes", str(limit))
            if os.path.exists(f"{self.folder}/memory.memsw.limit_in_bytes"):
                write_text(f"{self.folder}/memory.memsw.limit_in_bytes", str(limit))
            return
        write_text(f"{self.folder}/memory.max", str(limit))
        if os.path.exists(f"{self.folder}/memory.swap.max"):
            write_text(f"{self.folder}/memory.swap.max", "0")

    def enter(self):
        write_text(f"{self.folder}/cgroup.procs", str(os.getpid()))

    def stat(self):
        """Returns memory.stat as a dict."""
        pairs = (line.split() for line in read_text(f"{self.folder}/memory.stat").splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}

    def usage(self):
        name = "memory.current" if self.is_v2 else "memory.usage_in_bytes"
        return int(read_text(f"{self.folder}/{name}"))

    def oom_kills(self):
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        found = re.search(r"^oom_kill (\d+)$", read_text(f"{self.folder}/{name}"), re.M)
        return int(found.group(1)) if found else 0

    def close(self):
        for _ in range(100):
            try:
                if self.folder:
                    os.rmdir(self.folder)
                self.folder = None
                return
            except OSError:
                time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
