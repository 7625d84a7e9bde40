"""Tests ranks on several nodes whose shared folder is full, read-only or owned by another user, or whose file server
hangs. The ranks get the environment variables of torchrun. In all cases they finish with their own output and exit
status."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

from commands import NOBODY, PATIENCE_S, PYTHON, binary, environment, wait_for
from hanging import Hanging

# A rank that runs until the file "stop" exists in the folder named by its first argument.
RANK = """
import os, sys, time
open(f"{sys.argv[1]}/ready." + os.environ["RANK"], "w").close()
while not os.path.exists(f"{sys.argv[1]}/stop"):
    time.sleep(0.02)
print("finished", flush=True)
sys.exit(int(sys.argv[2]))
"""


class Job:
    """Two nodes with two ranks each. Their working folder is SHARED; LOCAL contains files of the test."""

    def __init__(self, shared, local, status=0, env=None, **options):
        self.local, self.env = local, env or {}
        self.ranks = [self.start(rank, shared, status, options) for rank in range(4)]
        wait_for(lambda: len(list(local.glob("ready.*"))) == 4, "ranks")

    def start(self, rank, shared, status, options):
        values = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": rank // 2,
                  "GROUP_WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": f"t{os.getpid()}-{self.local.name}", "MASTER_PORT": 1}
        command = [os.path.abspath(binary()), "run", "--no-heap", "--", PYTHON, "-c", RANK, self.local, str(status)]
        values = {key: str(value) for key, value in {**values, **self.env}.items()}
        return subprocess.Popen(command, cwd=shared, env=environment(values), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def end(self):
        """Ends the ranks and returns their standard error."""
        (self.local / "stop").touch()
        texts = [rank.communicate(timeout=PATIENCE_S) for rank in self.ranks]
        assert [out for out, _ in texts] == ["finished\n"] * 4, texts
        return "".join(err for _, err in texts)


def node(shared, number):
    return json.loads(next(shared.glob(f"ebb-runs/t*/node-{number:02}/run.json")).read_text())


@pytest.fixture
def local(tmp_path):
    made = tmp_path / "local"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.fixture
def mounted(tmp_path):
    """Returns a function that mounts a tmpfs with given options. Mounting requires root, and is not allowed in every
    container."""
    made = tmp_path / "shared"
    made.mkdir()

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", made], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            pytest.skip(f"tmpfs cannot be mounted: {done.stderr.strip()}")
        return made

    yield mount
    subprocess.run(["umount", "-l", made], stderr=subprocess.DEVNULL)


def fill(folder):
    with open(folder / "filler", "wb", buffering=0) as f:
        try:
            while f.write(bytes(4096)):
                pass
        except OSError:
            pass


def test_ranks_finish_if_the_disk_is_full_from_the_start(mounted, local):
    job = Job(mounted("size=8k"), local)
    err = job.end()
    assert [rank.returncode for rank in job.ranks] == [0] * 4, err
    assert "cannot write run.json: No space left on device" in err


def test_ranks_finish_if_the_disk_fills_up_during_the_run(mounted, local):
    shared = mounted("size=1m")
    job = Job(shared, local, status=3)
    wait_for(lambda: len([b for b in shared.glob("ebb-runs/t*/node-*/heartbeat") if b.read_text()]) == 2, "heartbeats")
    wait_for(lambda: len(list(shared.glob("ebb-runs/t*/node-*/run.json"))) == 2, "both nodes")
    fill(shared)
    err = job.end()
    assert [rank.returncode for rank in job.ranks] == [3] * 4, err
    assert "cannot write run.json: No space left on device" in err
    assert "nodes      2 ended\n" in err, err


def test_ranks_run_without_a_recording_in_a_read_only_folder(mounted, local):
    shared = mounted("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", shared], check=True)
    job = Job(shared, local)
    err = job.end()
    assert [rank.returncode for rank in job.ranks] == [0] * 4, err
    assert err.count("Read-only file system; its ranks run without a recording") == 2, err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_ranks_run_without_a_recording_in_a_folder_of_another_user():
    """A file server that maps root to nobody refuses access in the same way."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # tmp_path is unsuitable: only its owner can enter it
        shared, local = pathlib.Path(made), pathlib.Path(made, "local")
        local.mkdir()
        shared.chmod(0o755)
        local.chmod(0o777)
        job = Job(shared, local, user=NOBODY, group=NOBODY, extra_groups=[])
        err = job.end()
    assert [rank.returncode for rank in job.ranks] == [0] * 4, err
    assert err.count("Permission denied; its ranks run without a recording") == 2, err


def test_ranks_can_exit_while_the_supervisors_hang(tmp_path, local):
    """The supervisors are stopped by SIGSTOP. To the ranks, they appear the same as if they hung in a file system."""
    job = Job(tmp_path, local, status=3)
    wait_for(lambda: len(list(tmp_path.glob("ebb-runs/t*/node-*/run.json"))) == 2, "both nodes")
    pids = [node(tmp_path, number)["supervisor_pid"] for number in (0, 1)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        err = job.end()
        assert [rank.returncode for rank in job.ranks] == [3] * 4, err
        assert time.monotonic() - begun < PATIENCE_S / 2
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("who", [["ebb", "ebb-summary"], []])
def test_exit_status_of_ranks_is_kept_while_the_shared_folder_hangs(tmp_path, local, who):
    """Accesses to the folder hang either only in the processes `ebb` and `ebb-summary`, which print the summary, or in
    all processes, including the supervisors."""
    shared, hanging = tmp_path / "shared", Hanging(tmp_path / "hangs")
    shared.mkdir()
    job = Job(shared, local, status=3, env=hanging.environment())
    wait_for(lambda: len(list(shared.glob("ebb-runs/t*/node-*/run.json"))) == 2, "both nodes")
    try:
        hanging.begin(shared / "ebb-runs", *who)
        begun = time.monotonic()
        err = job.end()
        assert [rank.returncode for rank in job.ranks] == [3] * 4, err
        assert time.monotonic() - begun < PATIENCE_S / 3
        assert err.count("no summary: access to the folder") == (1 if who else 0), err
        assert err.count("access to the run folder may hang") == (0 if who else 2), err
    finally:
        hanging.end()
        for rank in job.ranks:
            rank.kill()
