"""Tests the client commands against a real job server."""

import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest

from commands import (PATIENCE_S, binary, environment, is_at_rest, refused_with, run_ebb,
                      wait_for)
from guarded import TRAINER
from serving import serving


class Client:
    def __init__(self, server):
        self.server = server
        self.env = {"EBB_STATE_DIR": str(server.state)}

    def __call__(self, *arguments, **options):
        return run_ebb(*arguments, env=self.env, **options)

    def start(self, *arguments):
        return subprocess.Popen([binary(), *map(str, arguments)], env=environment(self.env),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def submit(self, *arguments):
        result = self("submit", *arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return int(result.stdout)

    def show(self, number):
        return json.loads(self("show", "--json", number).stdout)

    def wait_until(self, number, state):
        return wait_for(lambda: self.show(number)["state"] == state, f"job {number} to be {state}")


@pytest.fixture(scope="module")
def shared():
    with serving("--slots", "8", "--interval", "100ms", "--grace", "5s", "--log-max",
                 "64K") as server:
        yield server


@pytest.fixture
def client(shared):
    return Client(shared)


def test_submitted_job_runs_and_succeeds(client, tmp_path):
    number = client.submit("--name", "first", "--cwd", tmp_path, "--env", "WORD=hello", "--", "sh",
                           "-c", "echo $WORD; pwd; exit 3")
    result = client("wait", number)
    assert result.returncode == 3
    assert result.stdout.startswith(f"{number} failed after ")
    assert client("logs", number).stdout == f"hello\n{tmp_path}\n"
    job = client.show(number)
    assert (job["name"], job["state"], job["status"]) == ("first", "failed", 3)
    text = client("show", number).stdout
    assert text.startswith(f"job {number} first failed")
    assert "changes" in text
    assert f"{number}  first" in client("jobs", "--name", "first").stdout


def test_wait_command_exits_with_125_if_the_job_program_is_missing(client):
    number = client.submit("--", "/no/such/program")
    result = client("wait", number)
    assert (result.returncode, result.stderr) == (125, "")
    assert 'command not found: "/no/such/program"' in result.stdout


def test_submit_with_follow_prints_the_log_and_returns_the_status(client):
    result = client("submit", "--follow", "--", "sh", "-c",
                    "echo one; sleep 0.3; echo two; sleep 0.3; echo three; exit 5")
    assert (result.returncode, result.stdout) == (5, "one\ntwo\nthree\n")


def test_logs_with_follow_prints_new_output_of_a_running_job(client, tmp_path):
    number = client.submit("--cwd", tmp_path, "--", "sh", "-c",
                           "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two")
    follower = client.start("logs", "-f", number)
    assert follower.stdout.readline() == "one\n"
    (tmp_path / "go").touch()
    out, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out, err) == (0, "two\n", "")


def test_first_and_last_part_of_a_long_log_are_kept(client):
    number = client.submit("--", "seq", "1", "100000")
    assert client("wait", "-q", number).returncode == 0
    result = client("logs", number)
    lines = result.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("1", "100000")
    assert "bytes of the log were dropped here" in result.stderr
    assert len(result.stdout) <= 64 << 10
    assert client("logs", "--tail", 3, number).stdout == "99998\n99999\n100000\n"


def test_cancel_reason_of_a_running_job_is_stored(client):
    number = client.submit("--name", "long", "--", "sleep", "600")
    client.wait_until(number, "running")
    assert "running" in client("jobs", "--state", "active").stdout
    assert client("cancel", "--reason", "no longer needed", "--grace", "1s", number).returncode == 0
    result = client("wait", number)
    assert result.returncode == 125
    assert "cancelled" in result.stdout and "no longer needed" in result.stdout
    assert refused_with(client("cancel", number), "ended")


def test_option_after_starts_a_job_only_after_earlier_jobs_succeed(client):
    first = client.submit("--", "sh", "-c", "sleep 0.5")
    second = client.submit("--after", first, "--", "true")
    third = client.submit("--after", second, "--after", first, "--", "sh", "-c", "exit 4")
    never = client.submit("--after", third, "--", "true")
    assert client("wait", first, second, third).returncode == 4
    assert client("wait", never).returncode == 125
    again = int(client("rerun", first).stdout)
    assert client("wait", again).returncode == 0
    assert client.show(again)["rerun_of"] == first


def test_checkpoint_command_makes_the_job_write_a_checkpoint(client, tmp_path):
    if not os.path.exists(TRAINER):
        pytest.fail(f"{TRAINER} does not exist; build the target `examples`")
    number = client.submit("--cwd", tmp_path, "--interval", "50ms", "--", TRAINER, "base_mib=5",
                           "leak_kib=0", "step_ms=20", "steps=100000")
    wait_for(lambda: (client.show(number)["progress"] or {}).get("step"), "steps")
    assert client("checkpoint", number).returncode == 0
    wait_for(lambda: (tmp_path / "checkpoint").exists(), "the checkpoint")
    assert client("cancel", "--grace", "2s", number).returncode == 0
    client("wait", number)


def test_submit_command_passes_guard_options_on_to_the_job(client):
    number = client.submit("--limit", "1G", "--restart", "--max-restarts", 2, "--no-heap", "--",
                           "sh", "-c", "echo $EBB_LIMIT_BYTES")
    assert client("wait", number).returncode == 0
    assert client("logs", number).stdout == f"{1 << 30}\n"
    job = client.show(number)
    assert job["options"] == {"restart": True, "max-restarts": "2", "no-heap": True}


@pytest.mark.parametrize("options, words", [
    (["--no-guard", "--checkpoint-cmd", "true"], "no-guard"), (["--after", "99999"], "99999"),
    (["--gpu", "3"], "GPU")])
def test_client_prints_an_error_of_the_server_as_one_line(client, options, words):
    assert refused_with(client("submit", *options, "--", "true"), words)


@pytest.mark.parametrize("command", ["show", "logs", "wait", "cancel", "checkpoint", "rerun"])
def test_every_client_command_reports_a_nonexistent_job(client, command):
    assert refused_with(client(command, 424242), "424242")


def sockets(pid):
    """Returns the sockets that a process has open."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return frozenset()
    return frozenset(link for link in links if link.startswith("socket:"))


def wait_for_question(server, process):
    """Waits until the server holds the client's current request open, so all earlier requests of the client have been
    answered."""
    def is_waiting():
        found = sockets(process.pid)
        for _ in range(3):
            if not found or not is_at_rest(process.pid) or server.get("/health").status != 200:
                return False
        return is_at_rest(process.pid) and sockets(process.pid) == found

    wait_for(is_waiting, "a question that waits")


def test_wait_command_continues_across_a_server_restart(tmp_path):
    with serving("--slots", "1") as server:
        client = Client(server)
        number = client.submit("--cwd", tmp_path, "--", "sh", "-c",
                               "while [ ! -e go ]; do sleep 0.05; done; echo done; exit 6")
        client.wait_until(number, "running")
        waiter, follower = client.start("wait", number), client.start("logs", "-f", number)
        wait_for_question(server, waiter)
        wait_for_question(server, follower)
        server.stop(signal.SIGKILL)
        server.start()
        (tmp_path / "go").touch()
        out, err = waiter.communicate(timeout=PATIENCE_S)
        assert (waiter.returncode, err) == (6, "")
        assert out.startswith(f"{number} failed")
        assert follower.communicate(timeout=PATIENCE_S) == ("done\n", "")


def waits_on(stack, server, number):
    """Opens a connection whose request waits until the job ends."""
    s = stack.enter_context(socket.socket(socket.AF_UNIX))
    s.settimeout(PATIENCE_S)
    s.connect(str(server.socket))
    s.sendall(f"GET /api/v1/jobs/{number}?until=ended&timeout_s=60 HTTP/1.1\r\n".encode() +
              b"Host: localhost\r\n\r\n")
    return s


def test_clients_poll_while_too_many_requests_wait_at_the_server(client, tmp_path):
    script = f"echo one; while [ ! -e {tmp_path}/gate ]; do sleep 0.1; done; echo two; exit 3"
    number = client.submit("--", "sh", "-c", script)
    client.wait_until(number, "running")
    with contextlib.ExitStack() as stack:
        waiting = [waits_on(stack, client.server, number) for _ in range(256)]
        busy = waits_on(stack, client.server, number)
        assert b" 429 " in busy.recv(64)
        clients = [client.start(*words, number) for words in [("wait",)] * 5 + [("logs", "-f")] * 2]
        submitted = client.start("submit", "--wait", "--after", number, "--", "true")
        assert [process.stdout.readline() for process in clients[5:]] == ["one\n"] * 2
        (tmp_path / "gate").touch()
        ends = [(*process.communicate(timeout=PATIENCE_S), process.returncode) for process in clients]
        submitted.communicate(timeout=PATIENCE_S)
        assert all(b" 200 " in s.recv(64) for s in waiting)
    assert {end[1:] for end in ends[:5]} == {("", 3)}
    assert ends[5:] == [("two\n", "", 0)] * 2
    assert submitted.returncode == 125  # The job named by --after has failed.


def test_server_and_clients_use_the_folder_in_variable_ebb_state_dir():
    with serving() as server:
        env = {"EBB_STATE_DIR": str(server.state)}
        assert run_ebb("jobs", env=env).returncode == 0
        result = run_ebb("serve", "--listen", "none", env=env)
        # Only the running server uses this state folder. An error that names the folder shows that the new server chose
        # the same one.
        assert refused_with(result, str(server.state))
