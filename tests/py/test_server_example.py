"""Tests examples/server.py and server_before.py as real servers, over HTTP and WebSocket."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("fastapi", reason="FastAPI is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 300
MIB = 1 << 20


class Server:
    def __init__(self, port):
        self.port = port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    def start(self, steps, mib_per_step=1):
        wanted = {"steps": steps, "mib_per_step": mib_per_step}
        return self.http.post("/jobs", json=wanted).json()["id"]

    def progress(self, number):
        """Yields the messages of the WebSocket until it closes."""
        with client.connect(f"ws://127.0.0.1:{self.port}/jobs/{number}/progress",
                            open_timeout=PATIENCE_S, ping_interval=None) as connection:
            for message in connection:
                yield json.loads(message)

    def finish(self, number):
        *_, end = self.progress(number)
        return end

    def rss(self):
        return self.http.get("/memory").json()["rss_bytes"]


@contextlib.contextmanager
def serving(module, tmp_path, **env):
    # The test binds the socket itself, to know the port and keep other programs from taking it.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        changed = dict(os.environ, PYTHONPATH=str(ROOT / "python"), TMPDIR=str(tmp_path), **env)
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"),
             "--log-level", "warning", "--ws-ping-timeout", str(PATIENCE_S),
             "--fd", str(listener.fileno()), f"{module}:app"],
            env=changed, pass_fds=[listener.fileno()], cwd=tmp_path)
    server = Server(port)
    try:
        yield server
    finally:
        server.http.close()
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def server(tmp_path):
    with serving("server", tmp_path) as made:
        yield made
    assert [name for name in os.listdir(tmp_path) if name.startswith("ebb-")] == []


def grown(server, jobs, steps, mib_per_step):
    # The first job loads modules, which must not be measured as growth.
    server.finish(server.start(2))
    before = server.rss()
    for _ in range(jobs):
        end = server.finish(server.start(steps, mib_per_step))
        assert end["state"] == "done" and end["result"]["steps"] == steps
    return server.rss() - before


def test_memory_of_the_server_grows_if_jobs_run_in_its_own_process(tmp_path):
    with serving("server_before", tmp_path) as server:
        assert grown(server, jobs=3, steps=10, mib_per_step=4) > 100 * MIB


def test_memory_of_the_server_does_not_grow_if_jobs_are_isolated(server):
    assert grown(server, jobs=3, steps=10, mib_per_step=4) < 16 * MIB


def test_example_server_works_with_isolation_disabled(tmp_path):
    with serving("server", tmp_path, EBB_ISOLATE="0") as server:
        assert grown(server, jobs=3, steps=10, mib_per_step=4) > 100 * MIB


def follow(server):
    """Returns the number of steps, the marks that a viewer received, and the last message. If the
    viewer connected too late, starts a longer job."""
    for count in (50, 200, 800, 3200):
        *steps, end = server.progress(server.start(count, mib_per_step=0))
        if steps:
            break
    return count, steps, end


@pytest.mark.parametrize("off", [False, True])
def test_example_server_sends_progress_over_websocket(tmp_path, off):
    with serving("server", tmp_path, **({"EBB_ISOLATE": "0"} if off else {})) as server:
        count, steps, end = follow(server)
    assert end == {"kind": "end", "state": "done", "error": None,
                   "result": {"steps": count, "loss": pytest.approx(0.9 ** count)}}
    # A slow viewer may miss marks, but receives none twice or out of order.
    numbers = [mark["step"] for mark in steps]
    assert numbers and numbers == sorted(set(numbers))
    assert all(mark == {"kind": "step", "step": mark["step"], "max_steps": count}
               for mark in steps)


def test_example_server_sends_the_exception_of_a_job_to_the_viewer(server):
    end = server.finish(server.start(0))
    assert (end["state"], end["error"]) == ("failed", "ValueError: 0 steps are none")


def test_job_over_the_memory_limit_does_not_harm_the_example_server(tmp_path):
    with serving("server", tmp_path, JOB_LIMIT="300M") as server:
        greedy, modest = server.start(1000, 8), server.start(5)
        assert server.finish(modest)["state"] == "done"
        end = server.finish(greedy)
        assert end["state"] == "failed"
        assert end["error"].startswith("MemoryLimitExceeded: train ended")
        assert server.finish(server.start(2))["state"] == "done"


def test_example_server_cancels_a_job(server):
    number = server.start(100000)
    for mark in server.progress(number):
        if mark["kind"] == "step":
            break
    assert server.http.delete(f"/jobs/{number}").json()["state"] == "cancelled"
    assert server.finish(number)["state"] == "cancelled"


def descendants(folder):
    """Returns the pids of all processes whose TMPDIR is FOLDER."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if f"TMPDIR={folder}\0".encode() in file.read():
                    found.append(int(entry))
        except OSError:
            pass
    return found


def test_example_server_that_is_stopped_ends_its_jobs(tmp_path):
    with serving("server", tmp_path) as server:
        for mark in server.progress(server.start(100000)):
            if mark["kind"] == "step":
                break
        assert len(descendants(tmp_path)) > 1
    until = time.monotonic() + PATIENCE_S
    while descendants(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert descendants(tmp_path) == []


def test_example_server_answers_404_for_an_unknown_job(server):
    answer = server.http.get("/jobs/77")
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no job 77")
