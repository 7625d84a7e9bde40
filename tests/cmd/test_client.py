"""Tests the client commands against a fake job server, whose responses each test defines."""

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import termios

import pytest

from commands import PATIENCE_S, binary, environment, refused, refused_with, run_ebb
from standin import StandIn, error, reply

JOB = {"id": 17, "name": "train", "command": ["python", "train.py", "a b"], "cwd": "/home/me",
       "state": "running", "reason": None, "waits_for": None, "submitted_s": 1.7e9,
       "started_s": 1.7e9 + 5, "ended_s": None, "status": None, "cause": None, "run_dir": "/runs/17",
       "memory_bytes": 1 << 34, "memory_from": "learned", "gpus": [], "segment": 0, "pid": 4711,
       "progress": {"step": 120, "max_steps": 1000, "epoch": 0.5, "steps_per_s": 2.0, "eta_s": 440},
       "memory": {"job_bytes": 3 << 30, "peak_bytes": 5 << 30, "unique_bytes": None,
                  "limit_bytes": 1 << 35, "headroom_bytes": 1 << 34, "gpu_bytes": None},
       "verdict": {"verdict": "leaking", "leak": True, "confidence": 0.9,
                   "rate_bytes_per_min": 1e6, "oom_eta_s": {"low": 720, "high": 900},
                   "sentence": "it grows by 1 MB/min"},
       "changes": [{"t_s": 1.7e9, "state": "queued", "reason": None},
                   {"t_s": 1.7e9 + 5, "state": "running", "reason": None}]}
DONE = {**JOB, "id": 16, "state": "failed", "ended_s": 1.7e9 + 65, "status": 3,
        "reason": "exit status 3", "cause": "exit status 3", "progress": None, "verdict": None}


@pytest.fixture
def server():
    standin = StandIn()
    yield standin
    standin.close()


@pytest.fixture
def client(server):
    def run(*arguments, **options):
        return run_ebb(*arguments, env={"EBB_SERVER": str(server.path)}, **options)
    return run


def said(result, text=""):
    assert (result.returncode, result.stderr, result.stdout) == (0, "", text)
    return True


# ---- finding the server ----

COMMANDS = [("submit", "--", "true"), ("jobs",), ("show", 1), ("logs", 1), ("wait", 1),
            ("cancel", 1), ("checkpoint", 1), ("rerun", 1)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_client_prints_one_line_of_advice_if_no_server_is_running(tmp_path, command):
    result = run_ebb(command[0], "--socket", tmp_path / "none", *command[1:])
    assert refused(result, f"{command[0]}: no server at {tmp_path}/none; start one with "
                   "`ebb serve`, or give its socket with --socket or $EBB_SERVER")


@pytest.mark.parametrize("env, path", [
    ({"EBB_SERVER": "/nowhere/a"}, "/nowhere/a"),
    ({"EBB_STATE_DIR": "/nowhere/b"}, "/nowhere/b/sock"),
    ({"XDG_STATE_HOME": "/nowhere/c"}, "/nowhere/c/ebb/sock"),
    ({"XDG_STATE_HOME": None, "HOME": "/nowhere/d"}, "/nowhere/d/.local/state/ebb/sock")])
def test_client_searches_documented_folders_for_the_server_socket(env, path):
    assert refused_with(run_ebb("jobs", env=env), f"no server at {path};")


def test_stale_socket_is_reported_as_server_not_running():
    listener = socket.socket(socket.AF_UNIX)
    path = tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp") + "/sock"
    listener.bind(path)
    listener.close()
    result = run_ebb("jobs", "--socket", path)
    shutil.rmtree(os.path.dirname(path))
    assert refused_with(result, f"no server at {path};")


def test_client_reports_a_server_that_is_not_ebb(server, client):
    for answer, words in [(b"220 smtp.example.org ready\r\n", "not an ebb server"),
                          (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "incomplete"),
                          (b"HTTP/1.1 200 OK\r\n", "incomplete"), (b"", "incomplete"),
                          (b"x" * 100000, "not an ebb server"),
                          (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40000 + b"\r\n\r\n", "not an ebb server"),
                          (b"HTTP/1.1 200 OK\r\n\r\nhello", "not JSON"),
                          (b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", "HTTP status 502"),
                          (error(503, "the disk is full\x1b[2J"), "the disk is full\\e[2J")]:
        server.say("GET /api/v1/jobs/1", answer)
        assert refused_with(client("show", 1), words)


def test_client_survives_random_bytes_from_the_server(server, client):
    chance = random.Random(8)
    good = reply(JOB)
    for _ in range(60):
        answer = bytearray(good if chance.random() < 0.7 else chance.randbytes(2000))
        for _ in range(chance.randrange(1, 20)):
            answer[chance.randrange(len(answer))] = chance.randrange(256)
        server.say("GET /api/v1/jobs/1", bytes(answer[:chance.randrange(len(answer))]))
        result = client("show", "--json", 1)
        assert result.returncode in (0, 2)
        assert result.returncode == 0 or result.stderr.count("\n") == 1, result.stderr


def test_client_stops_reading_an_endless_response(server, client):
    server.say("GET /api/v1/jobs/1", b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (17 << 20))
    assert refused_with(client("show", 1), "too long")


@pytest.mark.parametrize("answer", [reply(JOB), b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(JOB).encode()])
def test_client_reads_responses_with_or_without_content_length(server, client, answer):
    server.say("GET /api/v1/jobs/17", answer)
    result = client("show", "--json", 17)
    assert json.loads(result.stdout) == JOB


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1x", "99999999999999999999", "1/../2"])
@pytest.mark.parametrize("command", ["logs", "wait", "cancel", "checkpoint", "rerun"])
def test_client_refuses_invalid_job_id(client, server, command, text):
    assert refused_with(client(command, "--", text), "invalid job id")
    assert not server.asked


@pytest.mark.parametrize("text, part", [("0", "invalid job id"), ("1x", "No such file")])
def test_show_command_treats_a_number_as_a_job_id_and_text_as_a_run(client, server, text, part):
    assert refused_with(client("show", text), part)
    assert not server.asked


# ---- submit ----

def request_of(server):
    method, path, _, body, headers = server.asked[-1]
    assert (method, path) == ("POST", "/api/v1/jobs")
    assert headers["content-type"] == "application/json"
    return body


def test_submit_sends_the_command_verbatim_and_prints_the_job_id(server, client, tmp_path):
    server.say("POST /api/v1/jobs", reply(JOB, 201))
    assert said(client("submit", "--", "python", "train.py", "--x", "é ö", cwd=tmp_path), "17\n")
    assert request_of(server) == {"command": ["python", "train.py", "--x", "é ö"],
                                  "cwd": str(tmp_path), "env": {}, "after": [], "options": {}}


def test_submit_command_sends_all_options(server, client, tmp_path):
    server.say("POST /api/v1/jobs", reply(JOB, 201))
    result = run_ebb("submit", "-n", "tune", "--memory", "24G", "--limit", "80%", "--gpu", 2,
                     "--cwd", tmp_path, "--env", "A=b=c", "-e", "B=", "-e", "KNOWN", "--priority",
                     -5, "--after", 3, "-a", 4, "--restart", "--resume-args", "--resume last",
                     "--checkpoint-signal", "USR1", "--max-restarts", 7, "--interval", "200ms",
                     "--no-heap", "--json", "train",
                     env={"EBB_SERVER": str(server.path), "KNOWN": "here"})
    assert (result.returncode, json.loads(result.stdout)) == (0, JOB)
    assert request_of(server) == {
        "command": ["train"], "name": "tune", "memory": "24G", "limit": "80%", "gpus": 2,
        "cwd": str(tmp_path), "env": {"A": "b=c", "B": "", "KNOWN": "here"}, "priority": -5,
        "after": [3, 4],
        "options": {"restart": True, "resume-args": "--resume last", "checkpoint-signal": "USR1",
                    "max-restarts": "7", "interval": "200ms", "no-heap": True}}


@pytest.mark.parametrize("options, words", [
    (["--env", "=x"], "neither K=V nor"), (["--env", "NOT_SET_ANYWHERE"], "neither K=V nor"),
    (["--after", "x"], "invalid job id"), (["--gpu", "-1"], "--gpu"), (["--memory", "lots"], "--memory"),
    (["--priority", "101"], "--priority"), (["--config", "x"], "unknown option --config"),
    (["--cwd", "/no/such/folder"], "/no/such/folder"), (["--restrat"], "--restart"),
    (["--limit", "24"], 'submit: --limit: "24" has no unit; did you mean 24G?'),
    (["--no-guard", "--grace", "2s"], "--grace configures the guard")])
def test_submit_refuses_invalid_options_before_sending_a_request(server, client, options, words):
    assert refused_with(client("submit", *options, "--", "true"), words)
    assert not server.asked


def test_submit_without_command_is_refused(client):
    assert refused_with(client("submit"), "command missing")


def test_submit_command_refuses_a_command_that_is_not_utf8(server):
    result = subprocess.run([binary(), "submit", "--", "true", b"\xff"], capture_output=True,
                            env=environment({"EBB_SERVER": str(server.path)}), check=False)
    assert result.returncode == 2
    assert b"is not UTF-8" in result.stderr


def test_client_prints_why_the_server_refused_a_request(server, client):
    server.say("POST /api/v1/jobs", error(400, "memory: 24T is more than there is"))
    assert refused(client("submit", "--", "true"), "submit: memory: 24T is more than there is")


@pytest.mark.parametrize("state, status, expected, words", [
    ("succeeded", 0, 0, ""), ("failed", 3, 3, "failed"), ("failed", None, 125, "failed"),
    ("failed", 124, 124, "failed"), ("cancelled", 143, 125, "cancelled"),
    ("lost", None, 125, "lost")])
def test_option_wait_of_submit_makes_ebb_exit_with_the_job_status(server, client, state, status, expected, words):
    server.say("POST /api/v1/jobs", reply({**JOB, "state": "queued"}, 201))
    answers = iter([{**JOB, "state": "running"}, {**DONE, "state": state, "status": status}])
    server.say("GET /api/v1/jobs/17", lambda query, body: reply(next(answers)))
    result = client("submit", "--wait", "--", "true")
    assert (result.returncode, result.stdout) == (expected, "17\n")
    assert words in result.stderr
    assert server.asked[-1][2]["until"] == "ended"


# ---- tables of jobs ----

def list_of(server, active=(), ended=()):
    def answer(query, body):
        jobs = {"active": active, "ended": ended}.get(query.get("state"), [*active, *ended])
        return reply({"jobs": list(jobs), "more": False})
    server.say("GET /api/v1/jobs", answer)


def test_jobs_table_aligns_state_memory_and_verdict_in_columns(server, client):
    queued = {**JOB, "id": 18, "state": "queued", "started_s": None, "memory": None,
              "verdict": None, "progress": None, "waits_for": "waits for memory: needs 24 GiB"}
    list_of(server, [queued, JOB], [DONE])
    result = client("jobs")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATE", "MEMORY", "PEAK", "VERDICT", "PROGRESS",
                                "TIME", "WHY"]
    assert lines[1].split()[:3] == ["18", "train", "queued"]
    assert lines[1].endswith("waits for memory: needs 24 GiB")
    assert lines[2].split()[:8] == ["17", "train", "running", "3.00G", "5.00G", "leaking",
                                    "120/1000", "12%"]
    assert lines[2].endswith("out of memory in about 14 min")
    assert lines[3].split()[:4] == ["16", "train", "failed", "–"]
    assert re.search(r" 1 min 00 s +exit status 3$", lines[3])
    starts = {line.index(word) for line, word in zip(lines, ["STATE", "queued", "running", "failed"])}
    assert len(starts) == 1


@pytest.mark.parametrize("word", ["undecided", "filling"])
def test_jobs_table_shows_time_to_oom_only_if_a_leak_is_certain(server, client, word):
    list_of(server, [{**JOB, "verdict": {**JOB["verdict"], "verdict": word, "leak": None}}])
    assert client("jobs").stdout.splitlines()[1].endswith("7 min 20 s left")


def read_all(fd):
    """Reads the remaining output from a pseudo-terminal after all writers have closed it."""
    data = b""
    with contextlib.suppress(OSError):
        while piece := os.read(fd, 65536):
            data += piece
    return data


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_jobs_table_fits_the_terminal_width(server, columns):
    list_of(server, [{**JOB, "name": "a long name for a job" * 3, "reason": "why " * 100}])
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = environment({"EBB_SERVER": str(server.path), "NO_COLOR": "1"})
    subprocess.run([binary(), "jobs"], stdout=theirs, env=env, check=True)
    os.close(theirs)
    text = read_all(ours).decode()
    os.close(ours)
    lines = text.replace("\r", "").splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= columns
    assert "running" in lines[1] and "17" in lines[1]


def test_jobs_table_escapes_names_and_reasons(server, client):
    evil = {**DONE, "name": "a\x1b[2Jb\n", "reason": "bell\x07\u202e", "cause": None}
    list_of(server, [], [evil])
    server.say("GET /api/v1/jobs/16", reply({**evil, "command": ["\x1b]0;x\x07"], "cwd": "/\r"}))
    for result in (client("jobs"), client("show", 16)):
        assert result.returncode == 0
        assert not set("\x1b\x07\r\u202e") & set(result.stdout)
    assert "a\\e[2Jb\\n" in client("jobs").stdout


def test_jobs_command_requests_the_list_page_by_page(server, client):
    def answer(query, body):
        before = int(query.get("before", 1001))
        ids = range(before - 1, max(before - 1 - int(query["limit"]), 0), -1)
        return reply({"jobs": [{**DONE, "id": n} for n in ids], "more": ids[-1] > 1})
    server.say("GET /api/v1/jobs", answer)
    result = client("jobs", "--all", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == list(
        range(1000, 0, -1))
    assert len(server.asked) == 2


def test_jobs_command_stops_if_the_server_reports_endless_pages(server, client):
    server.say("GET /api/v1/jobs", reply({"jobs": [JOB], "more": True}))
    assert client("jobs", "--all").returncode == 0
    assert len(server.asked) <= 3


def test_jobs_command_filters_by_state_and_name(server, client):
    list_of(server)
    result = client("jobs", "--state", "failed,lost", "--name", "a&b=c é%")
    assert (result.returncode, result.stderr) == (0, "ebb: jobs: no job matches\n")
    assert server.asked[0][2] == {"limit": "500", "state": "failed,lost", "name": "a&b=c é%"}


# ---- one job ----

def test_show_command_prints_every_field_of_a_job(server, client, golden):
    server.say("GET /api/v1/jobs/16", reply({
        **DONE, "given_back": {"host_bytes": 1 << 30, "clean": True},
        "changes": [{"t_s": 1.7e9, "state": "queued", "reason": None},
                    {"t_s": 1.7e9 + 65, "state": "failed", "reason": "exit status 3"}]}))
    result = run_ebb("show", 16, env={"EBB_SERVER": str(server.path), "TZ": "UTC"})
    assert (result.returncode, result.stderr) == (0, "")
    golden("client-show.txt", result.stdout)


@pytest.mark.parametrize("doc", [{}, [], {"id": "x", "state": 5, "memory": [], "progress": "no",
                                          "changes": {"a": 1}, "command": "true"}])
def test_show_command_survives_a_response_with_values_of_wrong_type(server, client, doc):
    server.say("GET /api/v1/jobs/16", reply(doc))
    assert client("show", 16).returncode == 0


def test_show_command_reports_an_unknown_job_id(server, client):
    server.say("GET /api/v1/jobs/5", error(404, "no such job: 5"))
    assert refused(client("show", 5), "show: no such job: 5")


# ---- logs ----

class Log:
    """Simulates the log API of the job server; each response has at most PIECE bytes."""

    def __init__(self, server, text, piece=1000, states=("succeeded",), dropped=None):
        self.text, self.piece, self.dropped = text, piece, dropped
        self.states = list(states)
        server.say("GET /api/v1/jobs/17/log", self.answer)
        server.say("GET /api/v1/jobs/17", self.job)

    def answer(self, query, body):
        end = len(self.text)
        if "tail" in query:
            at = max(end - int(query["tail"]), 0)
            part = self.text[at:]
        else:
            at = int(query["offset"])
            if self.dropped and self.dropped[0] <= at < self.dropped[1]:
                at = self.dropped[1]
            limit = self.dropped[0] if self.dropped and at < self.dropped[0] else end
            part = self.text[at:min(at + self.piece, limit)]
        return reply(part, headers={"X-Log-Offset": at, "X-Log-End": end})

    def job(self, query, body):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return reply({**DONE, "id": 17, "state": state})


TEXT = b"".join(b"line %d\n" % i for i in range(1, 5001))


def test_logs_command_requests_a_long_log_in_pieces(server, client):
    Log(server, TEXT)
    assert said(client("logs", 17), TEXT.decode())


def test_logs_command_prints_nothing_for_an_empty_log(server, client):
    Log(server, b"")
    assert said(client("logs", 17))
    assert said(client("logs", "--tail", 5, 17))


@pytest.mark.parametrize("lines", [0, 1, 10, 4999, 5000, 6000])
def test_option_tail_of_logs_prints_the_last_lines(server, client, lines):
    Log(server, TEXT)
    wanted = TEXT.decode().splitlines(keepends=True)[5000 - lines if lines < 5000 else 0:]
    assert said(client("logs", "--tail", lines, 17), "".join(wanted))


def test_option_tail_of_logs_accepts_a_log_without_final_newline(server, client):
    Log(server, b"one\ntwo\nthree")
    assert said(client("logs", "-n", 2, 17), "two\nthree")


def test_logs_command_reports_the_size_of_the_dropped_log_part(server, client):
    Log(server, TEXT, dropped=(3000, 40000))
    result = client("logs", 17)
    assert (result.returncode, result.stdout) == (0, (TEXT[:3000] + TEXT[40000:]).decode())
    assert result.stderr == "ebb: logs: 37000 bytes of the log were dropped here\n"


def test_option_follow_of_logs_prints_output_until_the_job_ends(server, client):
    log = Log(server, b"first\n", states=["running", "running", "failed"])

    def job(query, body):
        log.text += b"more\n"
        return Log.job(log, query, body)
    server.say("GET /api/v1/jobs/17", job)
    assert said(client("logs", "-f", 17), "first\n" + "more\n" * 3)
    assert any("wait_s" in query for _, path, query, _, _ in server.asked if path.endswith("log"))


def test_client_exits_silently_when_its_output_pipe_is_closed(server):
    Log(server, TEXT * 100, piece=100000)
    result = subprocess.run(["sh", "-c", f"'{binary()}' logs 17 | head -1; exit ${{PIPESTATUS:-0}}"],
                            env=environment({"EBB_SERVER": str(server.path)}), capture_output=True,
                            timeout=PATIENCE_S, check=False)
    assert (result.stdout, result.stderr) == (b"line 1\n", b"")


# ---- cancel, checkpoint, rerun, wait ----

def test_cancel_command_sends_reason_and_grace_period(server, client):
    server.say("POST /api/v1/jobs/17/cancel", reply({}, 202))
    server.say("POST /api/v1/jobs/18/cancel", reply({}, 202))
    assert said(client("cancel", "--grace", "1.5s", "--reason", "wrong data", 17, 18))
    assert [asked[3] for asked in server.asked] == [{"reason": "wrong data", "grace_s": 1.5}] * 2
    assert said(client("cancel", 17))
    assert server.asked[-1][3] == {}


def test_cancel_command_skips_finished_jobs_and_cancels_the_rest(server, client):
    server.say("POST /api/v1/jobs/16/cancel", error(409, "job 16 has ended"))
    server.say("POST /api/v1/jobs/17/cancel", reply({}, 202))
    assert refused(client("cancel", 16, 17), "cancel: job 16 has ended")
    assert len(server.asked) == 2


def test_checkpoint_and_rerun_commands_post_to_the_api_of_the_job(server, client):
    server.say("POST /api/v1/jobs/17/checkpoint", reply({}, 202))
    server.say("POST /api/v1/jobs/16/rerun", reply({**JOB, "id": 19}, 201))
    assert said(client("checkpoint", 17))
    assert said(client("rerun", 16), "19\n")
    assert json.loads(client("rerun", "--json", 16).stdout)["id"] == 19


def test_wait_command_exits_with_the_highest_status_of_several_jobs(server, client):
    for number, state, status in [(1, "succeeded", 0), (2, "failed", 7), (3, "failed", 2)]:
        server.say(f"GET /api/v1/jobs/{number}",
                   reply({**DONE, "id": number, "state": state, "status": status, "reason": None,
                          "cause": "because"}))
    result = client("wait", 1, 2, 3)
    assert (result.returncode, result.stderr) == (7, "")
    assert result.stdout == ("1 succeeded after 1 min 00 s\n2 failed after 1 min 00 s: because\n"
                             "3 failed after 1 min 00 s: because\n")
    assert client("wait", "-q", 1).stdout == ""
    assert json.loads(client("wait", "--json", 2).stdout)["status"] == 7


def test_wait_command_returns_at_its_timeout(server, client):
    server.say("GET /api/v1/jobs/17", reply(JOB))
    # On a busy machine, a short timeout may expire before the second request, so longer timeouts are tried, too.
    for limit_s in (0.3, 1, 5, 25):
        server.asked.clear()
        result = client("wait", "--timeout", f"{limit_s}s", 17)
        assert refused(result, "wait: job 17 has not ended", status=3)
        asked = [int(query.get("timeout_s", 0)) for _, _, query, _, _ in server.asked]
        if len(asked) > 1:
            break
    assert asked[0] == 0 and 1 <= asked[1] <= max(1, limit_s)


def test_wait_command_survives_a_restart_of_the_server(server, client):
    answers = [reply(JOB), b"", b"", error(503, "shutting down"), reply({**DONE, "id": 17})]
    server.say("GET /api/v1/jobs/17", lambda query, body: answers.pop(0))
    result = client("wait", 17)
    assert (result.returncode, result.stderr, answers) == (3, "", [])


def busy():
    return reply({"error": {"status": 429, "message": "too many wait"}}, 429, {"Retry-After": "1"})


def test_wait_command_polls_while_too_many_requests_wait_at_the_server(server, client):
    answers = [reply(JOB), busy(), busy(), reply({**DONE, "id": 17})]
    server.say("GET /api/v1/jobs/17", lambda query, body: answers.pop(0))
    result = client("wait", 17)
    assert (result.returncode, result.stderr, answers) == (3, "", [])


def test_polling_wait_command_returns_at_its_timeout(server, client):
    server.say("GET /api/v1/jobs/17", lambda query, body: busy() if "until" in query else reply(JOB))
    assert refused(client("wait", "--timeout", "1.5s", 17), "wait: job 17 has not ended", status=3)


def test_option_follow_of_logs_polls_while_the_server_is_busy(server, client):
    log = Log(server, b"first\n", states=["running", "running", "failed"])
    refusals = [True, True]

    def answer(query, body):
        return busy() if "wait_s" in query and refusals and refusals.pop() else log.answer(query, body)
    server.say("GET /api/v1/jobs/17/log", answer)
    assert said(client("logs", "-f", 17), "first\n")
    assert refusals == []


def test_wait_command_fails_if_the_server_rejects_the_request(server, client):
    server.say("GET /api/v1/jobs/17", error(503, "shutting down"))
    assert refused(client("wait", 17), "wait: shutting down")
    assert len(server.asked) == 1


def test_logs_command_resumes_after_a_lost_connection(server, client):
    log = Log(server, TEXT)
    cut = [True, False, False, True, False]

    def answer(query, body):
        whole = log.answer(query, body)
        return whole[:-100] if cut and cut.pop(0) else whole
    server.say("GET /api/v1/jobs/17/log", answer)
    assert said(client("logs", 17), TEXT.decode())
