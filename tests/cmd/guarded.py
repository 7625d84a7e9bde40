"""Runs jobs under ebb's guard for tests. All processes of a job inherit an environment variable, by which the tests
find leftover processes. Unrelated processes (bystanders) must survive every test."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import textwrap
import types
import uuid

import pytest

from commands import (NOBODY, PATIENCE_S, PYTHON, alive, binary, environment, recorded, run_ebb,
                      wait_for)

TRAINER = str(pathlib.Path(binary()).resolve().parent / "examples" / "trainer")
NEEDS_BYTES = 600 << 20

# With these options the trainer's headroom falls below the reserve after one second, and below the SIGTERM threshold
# five seconds later. This is enough time to request a checkpoint, even on a busy machine.
LINES = ("--limit", "200M", "--reserve", "100M", "--interval", "100ms", "--pressure", "off")
LEAK = ("base_mib=90", "leak_kib=200", "step_ms=20")


def trainer(*settings, leak=LEAK):
    return ["--", TRAINER, *leak, *settings]


def cgroups_of_ebb():
    """Returns (path, "ebb-PID") for each cgroup of a job. os.walk skips cgroups that are removed during the walk."""
    return [(os.path.join(folder, name), name.rpartition("-")[0])
            for folder, names, _ in os.walk("/sys/fs/cgroup")
            for name in names if name.startswith("ebb-")]


class Guarded:
    """Runs jobs in one folder and keeps track of all their processes."""

    def __init__(self, folder):
        self.folder = folder
        self.tag = f"GUARDED_JOB={uuid.uuid4().hex}"
        # In /tmp, so that the paths of the sockets are short enough for socket addresses.
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
        self.sockets.chmod(0o777)
        self.seen = set()
        self.clients = []
        # Cgroups that were left when earlier ebb processes were killed. The tests ignore them.
        self.others = {path for path, _ in cgroups_of_ebb()}

    def changes(self):
        """Returns the environment variables to change for ebb."""
        name, value = self.tag.split("=")
        return {name: value, "TMPDIR": str(self.sockets), "XDG_RUNTIME_DIR": None}

    def processes(self):
        """Returns pid and name of all live processes of the job, including those of ebb."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                marks = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                name = pathlib.Path(f"/proc/{entry}/comm").read_text(errors="replace").strip()
            except OSError:
                continue
            if self.tag.encode() in marks and alive(int(entry)):
                found[int(entry)] = name
        self.seen.update(found)
        return found

    def pid_of(self, name):
        """Returns the pid of one of ebb's own processes."""
        return next((pid for pid, comm in self.processes().items() if comm == name), None)

    def start(self, *arguments, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        client = subprocess.Popen([binary(), "run", *map(str, arguments)], cwd=self.folder,
                                  text=True, env=environment(self.changes()), **options)
        self.seen.add(client.pid)
        self.clients.append(client)
        return client

    def end(self, client):
        """Waits for the client to exit."""
        out, err = client.communicate(timeout=PATIENCE_S)
        return types.SimpleNamespace(returncode=client.returncode, stdout=out, stderr=err)

    def run(self, *arguments):
        return self.end(self.start(*arguments))

    def wait_for_file(self, name):
        return wait_for(lambda: (self.folder / name).exists(), f"the file {name}")

    def run_dirs(self):
        return list(self.folder.glob("ebb-runs/*-*/run.json"))

    def facts(self):
        runs = self.run_dirs()
        assert len(runs) == 1, runs
        doc = json.loads(runs[0].read_text())
        self.seen.add(doc.get("supervisor_pid"))
        return doc

    def wait_for_facts(self):
        """Returns the contents of run.json once the run has ended."""
        def ended():
            doc = self.facts() if self.run_dirs() else {}
            return doc if doc.get("state") == "ended" else None
        return wait_for(ended, "run.json to say that it ended")

    def log(self):
        return (self.run_dirs()[0].parent / "log.txt").read_text()

    def notes(self, kind):
        """Returns the data of all notes of type KIND in the recording."""
        return [o["data"] for o in recorded(self.run_dirs()[0].parent)
                if o["type"] == "note" and o["kind"] == kind]

    def cgroups(self):
        """Returns the existing cgroups of all supervisors that this object has seen."""
        own = {f"ebb-{pid}" for pid in self.seen}
        return [path for path, owner in cgroups_of_ebb() if owner in own and path not in self.others]

    def is_all_gone(self):
        return not self.processes() and not self.cgroups() and not os.listdir(self.sockets)

    def wait_until_all_is_gone(self):
        try:
            wait_for(self.is_all_gone, "nothing to be left")
        except AssertionError:
            raise AssertionError(f"left behind: processes {self.processes()}, cgroups "
                                 f"{self.cgroups()}, sockets {os.listdir(self.sockets)}") from None
        return True

    def clean(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for client in self.clients:
            if client.poll() is None:
                client.kill()
            client.communicate()
        shutil.rmtree(self.sockets, ignore_errors=True)


def script(folder, text, name="job.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def acts(doc):
    return [event["act"] for event in doc["guard"]["events"]]


@pytest.fixture(scope="session")
def enough_memory():
    """Skips the test if the effective memory limit of this machine is too low for it."""
    if not os.path.exists(TRAINER):
        pytest.fail(f"{TRAINER} does not exist; build the target `examples`")
    result = run_ebb("run", "--no-record", "--json", "--", "sleep", "0.3")
    room = json.loads(result.stderr.splitlines()[-1])["limit"]["headroom_bytes"]
    if room < NEEDS_BYTES:
        pytest.skip(f"{room >> 20} MiB are left here, the tests of the guard need "
                    f"{NEEDS_BYTES >> 20} MiB")


@pytest.fixture
def neighbours():
    """Unrelated processes of the same users, which no job or guard may affect."""
    users = [{}] if os.geteuid() != 0 else [{}, {"user": NOBODY, "group": NOBODY,
                                                 "extra_groups": []}]
    found = [subprocess.Popen([PYTHON, "-c", "import time; time.sleep(900)"], env=environment(),
                              stdin=subprocess.DEVNULL, cwd="/", **user) for user in users]
    yield found
    fates = [process.poll() for process in found]
    for process in found:
        process.kill()
        process.wait()
    assert fates == [None] * len(found), f"a neighbour did not survive: {fates}"


@pytest.fixture
def guarded(tmp_path, neighbours, enough_memory):
    """Runs jobs. After the test, no process of a job may remain, and the bystanders must be alive."""
    jobs = Guarded(tmp_path)
    try:
        yield jobs
        jobs.wait_until_all_is_gone()
    finally:
        jobs.clean()
