"""Tests the server's API with an HTTP client and with raw sockets: every path, permissions, and refused requests."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import select
import socket
import subprocess
import tempfile
import time

import pytest

from commands import IS_SANITIZED, PATIENCE_S, ROOT, begun_early, plain, run_ebb, wait_for
from serving import fill, hear, serving, small_disk

HOST = b"Host: localhost\r\n"
# libmicrohttpd 1.0 handles invalid requests itself: it sends its own error page or closes the connection.
REFUSES_ITSELF = not subprocess.run(["pkg-config", "--modversion", "libmicrohttpd"], stdout=subprocess.PIPE, text=True,
                                    check=True).stdout.startswith("0.")


@pytest.fixture(scope="module")
def server():
    with serving("--slots", "8", "--interval", "100ms", "--grace", "2s") as s:
        yield s


@pytest.fixture(scope="module")
def done(server):
    """Returns a finished job for tests that do not change anything."""
    number = server.submit("sh", "-c", "echo first; sleep 0.5; echo second", name="done",
                           env={"COLOUR": "blue"})
    assert server.wait(number)["state"] == "succeeded"
    return number


# ---- openapi.json ----

def fits(schema, value, schemas, where="$"):
    """Raises an error unless VALUE matches SCHEMA. Supports the subset of JSON Schema that openapi.json uses."""
    if "$ref" in schema:
        return fits(schemas[schema["$ref"].rsplit("/", 1)[1]], value, schemas, where)
    if "anyOf" in schema:
        wrong = []
        for one in schema["anyOf"]:
            try:
                return fits(one, value, schemas, where)
            except AssertionError as error:
                wrong.append(str(error))
        raise AssertionError(" and ".join(wrong))
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
             "integer": int, "number": (int, float)}
    kind = schema.get("type")
    if kind:
        assert isinstance(value, kinds[kind]), f"{where}: {value!r} is not of type {kind}"
        assert kind not in ("integer", "number") or not isinstance(value, bool), where
    assert "enum" not in schema or value in schema["enum"], f"{where}: {value!r}"
    if kind == "object":
        for key in schema.get("required", []):
            assert key in value, f"{where}: there is no {key}"
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if inner:
                fits(inner, item, schemas, f"{where}.{key}")
    if kind == "array":
        for i, item in enumerate(value):
            fits(schema["items"], item, schemas, f"{where}[{i}]")
    return None


@pytest.fixture(scope="module")
def document(server):
    return server.get("/openapi.json").json()


def checked(document, method, path, answer):
    """Checks that openapi.json describes the status and body of ANSWER, the response to PATH."""
    operation = document["paths"][path][method.lower()]
    assert str(answer.status) in operation["responses"], (path, answer)
    content = operation["responses"][str(answer.status)].get("content", {})
    kind = answer.headers.get("Content-Type", "").split(";")[0]
    assert kind in content, (path, kind)
    if kind == "application/json":
        fits(content[kind]["schema"], answer.json(), document["components"]["schemas"])
    return answer


def test_response_of_every_api_path_matches_openapi(server, done, document):
    asked = set()

    def ask(method, path, body=None, **values):
        asked.add((method, path))
        at = path.format(id=values.pop("id", done))
        query = "&".join(f"{key}={value}" for key, value in values.items())
        answer = server.ask(method, f"{at}?{query}" if query else at, body=body)
        return checked(document, method, path, answer)

    v1 = "/api/v1"
    assert ask("GET", f"{v1}/health").json()["status"] == "ok"
    assert ask("GET", f"{v1}/machine").json()["memory"]["total_bytes"] > 0
    assert ask("GET", f"{v1}/jobs", state="ended", limit=5).json()["jobs"]
    assert ask("GET", f"{v1}/jobs/{{id}}").json()["changes"]
    for part in ("request", "samples", "verdict", "diagnosis", "events", "run"):
        assert ask("GET", f"{v1}/jobs/{{id}}/{part}").status == 200
    assert ask("GET", f"{v1}/jobs/{{id}}/report").body.startswith(b"<!doctype html>")
    assert ask("GET", f"{v1}/jobs/{{id}}/log").body == b"first\nsecond\n"
    assert ask("GET", f"{v1}/openapi.json").json() == document
    new = ask("POST", f"{v1}/jobs", {"command": ["sleep", "600"], "name": "api"}).json()["id"]
    server.wait(new, "running")
    assert ask("POST", f"{v1}/jobs/{{id}}/checkpoint", id=new).status in (202, 409)
    assert ask("POST", f"{v1}/jobs/{{id}}/cancel", {"grace_s": 0}, id=new).status == 202
    assert ask("POST", f"{v1}/jobs/{{id}}/cancel", {}, id=done).status == 409
    again = ask("POST", f"{v1}/jobs/{{id}}/rerun").json()
    assert (again["rerun_of"], again["name"], again["env"]) == (done, "done", ["COLOUR"])
    assert ask("POST", f"{v1}/session", {"token": server.token}).json()["write"] is True
    assert ask("GET", f"{v1}/session").json() == {"write": True}
    assert ask("DELETE", f"{v1}/session").json() == {"write": False}
    ask("GET", "/metrics")
    asked.add(("GET", f"{v1}/live"))  # This path is a WebSocket and has its own tests.
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert asked == described


def test_error_response_of_every_api_path_matches_openapi(server, document):
    for path, item in document["paths"].items():
        for method in item:
            answer = server.ask(method.upper(), path.format(id=999999), body=b"{}", token="wrong")
            if item[method].get("security") != []:
                assert checked(document, method, path, answer).status == 401
            elif "{id}" in path:
                assert checked(document, method, path, answer).status == 404


def test_openapi_has_no_reference_to_a_missing_schema(document):
    text = json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert named <= set(document["components"]["schemas"])
    assert {"Job", "Request", "Samples", "Error"} <= named


def test_documentation_lists_every_api_path(document):
    docs = (ROOT / "docs" / "reference" / "api.md").read_text()
    for path, item in document["paths"].items():
        short = path.replace("{id}", "ID")
        for method in item:
            assert re.search(rf"\b{method.upper()}\b", docs) and short in docs, (method, path)


# ---- jobs ----

def test_job_submitted_through_the_api_runs_and_reports_its_status(server):
    number = server.submit("sh", "-c", "echo $WORD; exit 3", name="three", env={"WORD": "hi"})
    job = server.wait(number)
    assert (job["state"], job["status"], job["name"]) == ("failed", 3, "three")
    assert [change["state"] for change in job["changes"]][-1] == "failed"
    assert server.get(f"/jobs/{number}/log").body == b"hi\n"
    assert server.get(f"/jobs/{number}/run").json()["end"]["status"] == 3


def test_job_list_can_be_paged_and_filtered_by_state_and_name(server):
    numbers = [server.submit("true", name="paged") for _ in range(5)]
    for number in numbers:
        server.wait(number)
    first = server.get("/jobs?name=paged&limit=2").json()
    assert [job["id"] for job in first["jobs"]] == numbers[:-3:-1] and first["more"]
    rest = server.get(f"/jobs?name=paged&before={first['jobs'][-1]['id']}").json()
    assert [job["id"] for job in rest["jobs"]] == numbers[-3::-1] and not rest["more"]
    assert server.get("/jobs?name=paged&state=failed,active").json()["jobs"] == []
    assert len(server.get("/jobs?name=paged&state=succeeded,active").json()["jobs"]) == 5
    assert server.get("/jobs?name=nobody").json() == {"jobs": [], "more": False}


@pytest.mark.parametrize("query", ["state=nosuch", "limit=0", "limit=501", "limit=x", "before=-1",
                                   "before=0x10", "colour=red", "limit=1&limit=2", "limit=nan"])
def test_invalid_list_query_is_refused(server, query):
    assert server.get(f"/jobs?{query}").status == 400


def test_job_list_reflects_each_state_change_immediately(server):
    for _ in range(3):
        number = server.submit("sleep", "600", name="fresh")
        assert number in [job["id"] for job in server.get("/jobs?state=active").json()["jobs"]]
        assert server.post(f"/jobs/{number}/cancel", {"grace_s": 0}).status == 202
        server.wait(number)
        assert number not in [job["id"] for job in server.get("/jobs?state=active").json()["jobs"]]


def test_waiting_request_returns_when_the_job_reaches_a_given_state(server):
    number = server.submit("sleep", "600")
    job = server.get(f"/jobs/{number}?until=running&timeout_s=60").json()
    assert job["state"] == "running"
    assert server.get(f"/jobs/{number}?until=ended&timeout_s=0.2").json()["state"] == "running"
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 0, "reason": "enough"}).status == 202
    job = server.get(f"/jobs/{number}?until=ended&timeout_s=60").json()
    assert job["state"] == "cancelled" and "enough" in job["reason"]
    assert server.get(f"/jobs/{number}?until=running&timeout_s=60").json()["state"] == "cancelled"
    for query in ("until=soon", "until=ended&timeout_s=61", "until=ended&timeout_s=-1"):
        assert server.get(f"/jobs/{number}?{query}").status == 400


@pytest.mark.parametrize("request_, word", [
    ({}, "command"), ({"command": []}, "command"), ({"command": "ls"}, "command"),
    ({"command": ["a\0b"]}, "command"), ({"command": ["true"], "colour": 1}, "colour"),
    ({"command": ["true"], "priority": 101}, "priority"), ({"command": ["true"], "gpus": -1}, "gpus"),
    ({"command": ["true"], "limit": "much"}, "limit"), ({"command": ["true"], "name": ""}, "name"),
    ({"command": ["true"], "cwd": "/nonexistent"}, "cwd"), ({"command": ["true"], "after": [0]}, "after"),
    ({"command": ["true"], "env": {"A=B": "x"}}, "env"), ({"command": ["true"], "env": []}, "env"),
    ({"command": ["true"], "options": {"restart": "yes"}}, "restart"),
    ({"command": ["true"], "options": {"run-dir": "/etc"}}, "run-dir"),
    ({"command": ["true"], "options": {"restrat": True}}, "restart"),
    ({"command": ["true"], "options": {"config": "/etc/passwd"}}, "config"),
    ({"command": ["true"], "options": {"grace": "soon"}}, "grace"),
    ({"command": ["true"], "options": {"max-restarts": 3}}, "restart"),
])
def test_error_for_an_invalid_job_request_names_the_key(server, request_, word):
    answer = server.post("/jobs", request_)
    assert answer.status == 400 and word in answer.message(), answer


def test_guard_options_of_an_api_request_reach_the_job(server):
    number = server.submit("true", limit="1G", options={"no-heap": True, "interval": "200ms"})
    server.wait(number)
    run = server.get(f"/jobs/{number}/run").json()
    assert run["guard"]["limit_bytes"] == 1 << 30 and run["interval_s"] == 0.2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"1", b"\xff\xfe", b'{"command": ["a"]}x',
                                  b'{"command": ["a"], "command": ["b"]}', b"{" * 5000,
                                  b'{"command":' + b"[" * 100000 + b"]" * 100000 + b"}",
                                  b'{"a":' * 70 + b"1" + b"}" * 70])
def test_invalid_json_is_refused(server, body):
    answer = server.post("/jobs", body)
    assert answer.status == 400 and answer.message(), answer


@pytest.mark.parametrize("body", [{"grace_s": -1}, {"grace_s": "1"}, {"grace_s": 1e9}, {"reason": 5},
                                  {"reason": "x" * 300}])
def test_invalid_cancel_request_is_refused(server, done, body):
    assert server.post(f"/jobs/{done}/cancel", body).status == 400


def test_every_api_path_of_a_nonexistent_job_returns_404(server):
    for part in ("", "/samples", "/verdict", "/diagnosis", "/report", "/log", "/events", "/run"):
        answer = server.get(f"/jobs/999999{part}")
        assert answer.status == 404 and "999999" in answer.message(), answer
    for part in ("cancel", "checkpoint", "rerun"):
        assert server.post(f"/jobs/999999/{part}").status == 404
    for number in ("0", "-1", "01", "1e3", "99999999999999999999", "abc", "%31x", "1%00"):
        assert server.get(f"/jobs/{number}").status in (400, 404), number


def test_request_for_run_data_of_a_queued_job_gets_404(server):
    first = server.submit("sleep", "600")
    second = server.submit("true", after=[first])
    assert server.job(second)["state"] == "queued" and server.job(second)["waits_for"]
    for part in ("samples", "verdict", "diagnosis", "report", "run"):
        assert server.get(f"/jobs/{second}/{part}").status == 404
    assert server.get(f"/jobs/{second}/log").body == b""
    assert [e["kind"] for e in server.get(f"/jobs/{second}/events").json()["events"]] == ["state"]
    assert server.post(f"/jobs/{second}/checkpoint").status == 409
    assert server.post(f"/jobs/{second}/cancel").status == 202
    assert server.wait(second)["state"] == "cancelled"
    server.post(f"/jobs/{first}/cancel", {"grace_s": 0})
    server.wait(first)


# ---- samples ----

def test_samples_are_limited_to_the_requested_range(server, tmp_path):
    gate = tmp_path / "gate"
    number = server.submit("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    server.wait(number, "running")

    def sampled():
        answer = server.get(f"/jobs/{number}/samples")
        return answer.status == 200 and len(answer.json()["series"].get("t_s", [])) > 5

    wait_for(sampled, "some samples")
    gate.touch()
    server.wait(number)
    whole = server.get(f"/jobs/{number}/samples").json()
    times = whole["series"]["t_s"]
    assert len(times) > 5 and times == sorted(times)
    assert all(len(values) == len(times) for values in whole["series"].values())
    first, last = times[1], times[-2]
    part = server.get(f"/jobs/{number}/samples?from_s={first}&to_s={last}&points=16").json()
    assert part["series"]["t_s"] and len(part["series"]["t_s"]) <= 16
    assert all(first - 0.2 <= t <= last + 0.2 for t in part["series"]["t_s"])
    for query in ("points=15", "points=4001", "from_s=2&to_s=1", "from_s=-1", "from_s=inf"):
        assert server.get(f"/jobs/{number}/samples?{query}").status == 400


# ---- logs ----

def test_log_requests_accept_a_range_or_a_tail_or_an_offset(server, done):
    def log(query="", **headers):
        return server.get(f"/jobs/{done}/log{query}", headers=headers)

    assert log().body == b"first\nsecond\n"
    assert (log().headers["X-Log-Offset"], log().headers["X-Log-End"]) == ("0", "13")
    part = log(Range="bytes=6-8")
    assert (part.status, part.body) == (206, b"sec")
    assert part.headers["Content-Range"] == "bytes 6-8/13"
    assert log(Range="bytes=-4").body == b"ond\n"
    assert log(Range="bytes=6-").body == b"second\n"
    assert log(Range="bytes=6-999").headers["Content-Range"] == "bytes 6-12/13"
    assert log(Range="bytes=13-").status == 416
    assert log(Range="bytes=13-").headers["Content-Range"] == "bytes */13"
    for odd in ("bytes=5-2", "lines=1-2", "bytes=0-1,3-4", "bytes=x-y", "bytes=-", "bytes=--1"):
        assert log(Range=odd).status == 200
    assert log("?tail=5").body == b"cond\n" and log("?tail=5").headers["X-Log-Offset"] == "8"
    assert log("?tail=1000").body == b"first\nsecond\n"
    assert log("?offset=6").body == b"second\n"
    # The job has ended, so no more output will follow.
    assert log("?offset=13&wait_s=60").body == b""
    for query in ("?tail=0", "?tail=x", "?offset=-1", "?wait_s=61", "?tail=9999999"):
        assert log(query).status == 400


def test_waiting_log_request_returns_when_there_is_new_output(server, tmp_path):
    gate = tmp_path / "gate"
    number = server.submit("sh", "-c", f"echo one; until [ -e {gate} ]; do sleep 0.05; done; echo two")
    said, offset = b"", 0
    while said != b"one\n":
        answer = server.get(f"/jobs/{number}/log?offset={offset}&wait_s=30")
        said += answer.body
        offset = int(answer.headers["X-Log-Offset"]) + len(answer.body)
    assert server.get(f"/jobs/{number}/log?offset={offset}&wait_s=0.2").body == b""
    gate.touch()
    assert server.get(f"/jobs/{number}/log?offset={offset}&wait_s=60").body == b"two\n"


# ---- authentication ----

def test_requests_without_token_are_refused(server, done):
    for path in ("/jobs", "/machine", f"/jobs/{done}", f"/jobs/{done}/log", "/openapi.json", "/live"):
        for token in (None, "wrong", server.token[:-1], server.token + "x"):
            answer = server.get(path, token=token)
            assert answer.status == 401 and answer.headers["WWW-Authenticate"], (path, token)
    assert server.ask("GET", "/metrics", token=None).status == 401
    assert server.post("/jobs", {"command": ["true"]}, token=None).status == 401
    assert server.get("/jobs", token=None, headers={"Authorization": f"Basic {server.token}"}).status == 401
    assert server.get("/health", token=None).status == 200
    assert server.get("/jobs", token=None, unix=True).status == 200


def test_read_only_token_cannot_change_anything(server, done):
    before = server.get("/jobs").json()["jobs"][0]["id"]
    assert server.get("/jobs", token=server.reader).status == 200
    for path, body in (("/jobs", {"command": ["true"]}), (f"/jobs/{done}/rerun", {}),
                       (f"/jobs/{done}/cancel", {}), (f"/jobs/{done}/checkpoint", {})):
        assert server.post(path, body, token=server.reader).status == 403
    assert server.get("/jobs").json()["jobs"][0]["id"] == before


def test_token_files_are_readable_only_by_the_server_user(server):
    for name in ("token", "token.read-only"):
        assert (server.state / name).stat().st_mode & 0o777 == 0o600
    assert server.state.stat().st_mode & 0o777 == 0o700
    assert server.socket.stat().st_mode & 0o777 == 0o600
    assert server.token not in server.said() and server.reader not in server.said()


def login(server, token):
    answer = server.post("/session", {"token": token}, token=None)
    return answer, {"Cookie": answer.headers.get("Set-Cookie", "").split(";")[0],
                    "X-Ebb-Key": answer.json().get("key", "")}


def test_login_with_a_token_returns_a_session_cookie(server):
    answer, cookie = login(server, server.token)
    assert answer.status == 200
    for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert word in answer.headers["Set-Cookie"]
    assert server.token not in answer.headers["Set-Cookie"]
    assert server.get("/session", token=None, headers=cookie).json() == {"write": True}
    assert server.get("/jobs", token=None, headers=cookie).status == 200
    other = server.ask("DELETE", "/api/v1/session", token=None, headers=cookie)
    assert other.status == 200 and "Max-Age=0" in other.headers["Set-Cookie"]
    assert server.get("/jobs", token=None, headers=cookie).status == 401
    assert server.get("/session", token=None, headers=cookie).status == 401


def asked_with(server, headers, done):
    """Returns the HTTP status of each type of request made with these headers: reads, the live stream, environment
    values, and changes."""
    websocket = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                 "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    paths = ("/session", "/jobs", f"/jobs/{done}", f"/jobs/{done}/log", f"/jobs/{done}/request", "/machine",
             f"/jobs/{done}/report", "/openapi.json")
    asked = {path: server.get(path, token=None, headers=headers).status for path in paths}
    asked["/metrics"] = server.ask("GET", "/metrics", token=None, headers=headers).status
    asked["/live"] = server.get("/live", token=None, headers={**websocket, **headers}).status
    for path, body in (("/jobs", {"command": ["true"]}), (f"/jobs/{done}/rerun", {}),
                       (f"/jobs/{done}/cancel", {}), (f"/jobs/{done}/checkpoint", {})):
        asked[f"POST {path}"] = server.post(path, body, token=None, headers=headers).status
    return asked


def test_session_cookie_without_the_session_key_grants_no_access(server, done):
    """Browsers send a cookie to every port of a host, so a server of another user could receive the cookie."""
    answer, session = login(server, server.token)
    _, other = login(server, server.token)
    before = server.get("/jobs").json()["jobs"][0]["id"]
    for wrong in ({}, {"X-Ebb-Key": ""}, {"X-Ebb-Key": answer.json()["key"][:-1]},
                  {"X-Ebb-Key": other["X-Ebb-Key"]}, {"X-Ebb-Key": answer.json()["view"]},
                  {"Sec-WebSocket-Protocol": "ebb, ebb-key."}):
        asked = asked_with(server, {"Cookie": session["Cookie"], **wrong}, done)
        assert set(asked.values()) == {401}, (wrong, asked)
    assert server.ask("DELETE", "/api/v1/session", token=None,
                      headers={"Cookie": session["Cookie"]}).status == 200
    assert server.get("/jobs", token=None, headers={"X-Ebb-Key": session["X-Ebb-Key"]}).status == 401
    assert server.get("/jobs").json()["jobs"][0]["id"] == before
    # Requests without the session key must not end the session.
    assert server.get("/jobs", token=None, headers=session).status == 200


def test_view_parameter_of_a_url_grants_nothing_without_the_cookie(server, done):
    answer, session = login(server, server.token)
    cookie, view = {"Cookie": session["Cookie"]}, answer.json()["view"]
    report = server.get(f"/jobs/{done}/report?view={view}", token=None, headers=cookie)
    assert report.status == 200 and b"<html" in report.body
    assert server.get(f"/jobs/{done}/report?view={view}", token=None).status == 401
    assert server.get(f"/jobs/{done}/report?view=x", token=None, headers=cookie).status == 401
    assert server.get(f"/jobs?view={view}", token=None, headers=cookie).status == 400
    assert server.get(f"/jobs/{done}/request?view={view}", token=None, headers=cookie).status == 403
    assert server.post(f"/jobs/{done}/rerun?view={view}", {}, token=None, headers=cookie).status == 403


def test_read_only_token_does_not_reveal_environment_values(server):
    number = server.submit("true", env={"SECRET": "hush-hush"})
    server.wait(number)
    for path in ("/jobs", f"/jobs/{number}", f"/jobs/{number}/run", f"/jobs/{number}/events"):
        answer = server.get(path, token=server.reader)
        assert answer.status == 200 and b"hush" not in answer.body, path
    assert server.get(f"/jobs/{number}", token=server.reader).json()["env"] == ["SECRET"]
    assert server.get(f"/jobs/{number}/request", token=server.reader).status == 403
    assert server.get(f"/jobs/{number}/request").json()["env"] == {"SECRET": "hush-hush"}
    assert server.get("/jobs/999/request").status == 404


def test_session_opened_with_a_read_only_token_can_only_read(server):
    _, cookie = login(server, server.reader)
    assert server.get("/session", token=None, headers=cookie).json() == {"write": False}
    assert server.post("/jobs", {"command": ["true"]}, token=None, headers=cookie).status == 403


def test_requests_with_wrong_tokens_are_rate_limited():
    with serving() as s:
        assert [login(s, "wrong")[0].status for _ in range(10)] == [401] * 10
        # The rate limit accepts one more wrong token every few seconds, so a single request might not be refused.
        assert wait_for(lambda: login(s, "wrong")[0].status == 429, "wrong tokens to be refused")
        assert login(s, s.token)[0].status == 200  # Wrong tokens must not lock the owner out.
        assert s.get("/jobs").status == 200
        for body in ({}, {"token": 5}, {"token": None}):
            assert s.post("/session", body, token=None).status == 400


def test_login_session_survives_a_server_restart():
    with serving() as s:
        _, cookie = login(s, s.token)
        assert s.stop() == 0
        s.start()
        assert s.get("/jobs", token=None, headers=cookie).status == 200


def test_server_keeps_permissions_of_a_folder_it_did_not_create():
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        folder = pathlib.Path(path)
        (folder / "theirs").touch()
        folder.chmod(0o755)
        with serving(state=folder) as s:
            assert folder.stat().st_mode & 0o7777 == 0o755
            assert (s.state / "runs").stat().st_mode & 0o777 == 0o700


def test_state_folder_writable_by_others_is_refused_and_not_changed(tmp_path):
    (tmp_path / "theirs").touch()
    tmp_path.chmod(0o1777)
    result = said_by("--state-dir", tmp_path, "--listen", "none", "--gpus", "0")
    assert result.returncode == 2 and "other users can write to the folder" in result.stderr
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_login_session_ends_when_its_token_changes():
    with serving() as s:
        _, cookie = login(s, s.token)
        _, reading = login(s, s.reader)
        assert s.stop() == 0
        (s.state / "token").unlink()
        s.start()
        assert s.get("/jobs", token=None, headers=cookie).status == 401
        assert s.get("/jobs", token=None, headers=reading).status == 200


def test_cached_verdict_is_used_until_the_recording_changes(server):
    job = server.submit("sleep", "0.3")
    recording = pathlib.Path(server.wait(job)["run_dir"]) / "trace.ebb"
    first = server.get(f"/jobs/{job}/verdict")
    before = recording.stat()
    recording.write_bytes(b"x" * before.st_size)
    os.utime(recording, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert first.status == 200 and server.get(f"/jobs/{job}/verdict").json() == first.json()
    os.utime(recording)
    assert server.get(f"/jobs/{job}/verdict").status == 404


@pytest.mark.parametrize("what", ["pipe", "link", "brackets"])
def test_job_events_are_served_if_run_json_is_invalid(server, what):
    job = server.submit("true")
    path = pathlib.Path(server.wait(job)["run_dir"]) / "run.json"
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text('{"segments": [' + "[],[],[],[]," * 100000 + "{}]}")
    events = server.get(f"/jobs/{job}/events")
    assert {event["kind"] for event in events.json()["events"]} == {"state"}
    assert server.get(f"/jobs/{job}/run").status == (200 if what == "brackets" else 404)


def test_deeply_nested_json_body_is_refused(server):
    body = b'{"token": [' + b"[]," * 100000 + b"1]}"
    answer = server.post("/session", body, token=None)
    assert answer.status == 400 and "more than 20000 values" in answer.message()


def test_list_of_jobs_with_large_job_requests_is_paged(server):
    words = ["x" * 1000] * 120
    numbers = [server.submit("true", *words, name="large", env={"K": words[0] * 100})
               for _ in range(12)]
    seen, before = [], ""
    while True:
        answer = server.get(f"/jobs?name=large&limit=500{before}")
        assert len(answer.body) < 2 << 20
        seen += [job["id"] for job in answer.json()["jobs"]]
        if not answer.json()["more"]:
            break
        before = f"&before={seen[-1]}"
    assert seen == numbers[::-1]


def sip(sockets):
    """Reads a small part of the megabyte that the server sends to each socket."""
    for s in sockets:
        with contextlib.suppress(BlockingIOError):
            s.recv(40 << 10, socket.MSG_DONTWAIT)


def test_unread_http_responses_use_bounded_memory(server):
    job = server.submit("true", *["x" * 1000] * 120, name="slow")
    for _ in range(8):
        server.post(f"/jobs/{job}/rerun", {})
    refused, sockets, sipped_s = 0, [], time.monotonic()
    with contextlib.ExitStack() as stack:
        while refused < 3 and len(sockets) < 100:
            # If a client read nothing, the server would soon close its connection.
            if time.monotonic() - sipped_s > 5:
                sip(sockets)
                sipped_s = time.monotonic()
            # The kernel would buffer megabytes for a TCP socket, but not for a unix socket.
            s = stack.enter_context(socket.socket(socket.AF_UNIX))
            sockets.append(s)
            s.settimeout(PATIENCE_S)
            s.connect(str(server.socket))
            s.sendall(b"GET /api/v1/jobs?name=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            refused += b" 503 " in s.recv(32)
        assert refused > 0
        assert server.get("/health").status == 200
    wait_for(lambda: server.get("/jobs?name=slow").status == 200, "room for answers")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io", "",
                                  "localhost:80:80", "[::1"])
def test_foreign_host_header_is_refused(server, host):
    for path in ("/api/v1/jobs", "/", "/api/v1/health"):
        assert server.ask("GET", path, headers={"Host": host}).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:1", "10.0.0.1:99"])
def test_ip_addresses_and_localhost_are_valid_host_headers(server, host):
    assert server.get("/jobs", headers={"Host": host}).status == 200


def test_foreign_origin_is_refused(server):
    def ask(origin, **more):
        return server.get("/jobs", headers={"Origin": origin, **more}).status

    own = f"http://127.0.0.1:{server.port}"
    assert ask(own) == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1", own + "0", "file://", ""):
        assert ask(origin) == 403, origin
    before = server.get("/jobs").json()["jobs"][0]["id"]
    answer = server.post("/jobs", {"command": ["true"]}, headers={"Origin": "http://evil.example"})
    assert answer.status == 403
    assert server.get("/jobs").json()["jobs"][0]["id"] == before
    assert server.get("/jobs", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert server.ask("GET", "/", headers={"Sec-Fetch-Site": "cross-site",
                                           "Sec-Fetch-Mode": "navigate"}).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "",
                                  "application/jsonx", "multipart/form-data; boundary=x"])
def test_requests_that_change_state_require_json_content_type(server, kind):
    body = b'{"command": ["true"]}'
    assert server.post("/jobs", body, headers={"Content-Type": kind}).status == 415
    assert server.post("/jobs", body, headers={"Content-Type": kind}, unix=True).status == 415


# ---- HTTP ----

def test_unsupported_method_gets_405_with_allow_header(server):
    for method, path, allow in (("PUT", "/api/v1/jobs", "GET, HEAD, POST"),
                                ("DELETE", "/api/v1/jobs/1", "GET, HEAD"),
                                ("GET", "/api/v1/jobs/1/cancel", "POST"),
                                ("POST", "/", "GET, HEAD"), ("BREW", "/api/v1/health", "GET, HEAD")):
        answer = server.ask(method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allow)


def test_head_response_is_the_get_response_without_its_body(server, done):
    for path in ("/", f"/api/v1/jobs/{done}", f"/api/v1/jobs/{done}/log", "/api/v1/health"):
        answer = server.ask("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0


def test_page_and_assets_have_a_strict_content_security_policy(server):
    for path in ("/", "/jobs/1", "/machine"):
        page = server.ask("GET", path, token=None)
        assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe-inline" not in policy
    for name, kind in (("serve.js", "text/javascript"), ("serve.css", "text/css"), ("icon.svg", "image/svg+xml")):
        asset = server.ask("GET", f"/assets/{name}", token=None)
        assert asset.status == 200 and asset.headers["Content-Type"].startswith(kind)
        again = server.ask("GET", f"/assets/{name}", token=None,
                           headers={"If-None-Match": asset.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        packed = server.ask("GET", f"/assets/{name}", headers={"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip" and packed.body[:2] == b"\x1f\x8b"
    assert server.ask("GET", "/assets/nosuch.js").status == 404


def test_api_responses_have_security_headers(server, done):
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{done}/log", "/api/v1/nosuch", f"/api/v1/jobs/{done}/report"):
        headers = server.ask("GET", path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "sandbox" in server.get(f"/jobs/{done}/report").headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", [
    "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/../token", "/assets/%2e%2e/token",
    "/assets/..%2ftoken", "/assets/%2e%2e%2ftoken", "/assets/..%5ctoken", "/assets/....//token",
    "/assets//etc/passwd", "/assets/%00", "/assets/serve.js%00.html", "/api/v1/jobs/../../token",
    "/api/v1/jobs/1/../../../token", "/api/v1/jobs/1/log/../../token", "/api/v1/jobs/1/token",
    "/api/v1/jobs/%2e%2e", "//etc/passwd", "/%c0%ae%c0%ae/token", "/token", "/jobs/1/../../token"])
def test_path_traversal_is_refused(server, path):
    said = server.raw(f"GET {path} HTTP/1.1\r\n".encode() + HOST +
                      f"Authorization: Bearer {server.token}\r\nConnection: close\r\n\r\n".encode())
    assert re.match(rb"HTTP/1\.1 (400|404) ", said), said
    assert server.token.encode() not in said and b"root:" not in said


def test_oversized_request_body_is_refused(server):
    head = b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n" \
        b"Authorization: Bearer " + server.token.encode() + b"\r\n"
    assert server.raw(head + b"Content-Length: 1048577\r\n\r\n", b"413 ")
    said = server.raw(head + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", b"\r\n\r\n")
    assert b" 413 " in said and b"100 Continue" not in said
    said = server.raw(head + b"Content-Length: 99999999999999999999999\r\n\r\n", b"\r\n\r\n")
    assert re.match(rb"HTTP/1\.\d (400|413) ", said)
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    said = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 20 + b"0\r\n\r\n", b"\r\n\r\n")
    assert b" 413 " in said
    assert server.get("/health").status == 200


def test_request_body_just_below_the_maximum_size_is_parsed(server):
    body = json.dumps({"command": ["true"], "colour": "x" * ((1 << 20) - 100)}).encode()
    answer = server.post("/jobs", body)
    assert answer.status == 400 and "colour" in answer.message()


def test_chunked_body_and_expect_100_continue_are_accepted(server):
    head = b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n" \
        b"Connection: close\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n"
    body = b'{"command": ["true"], "name": "chunked"}'
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7))
    said = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 201 ")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as s:
        s.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert b"100 Continue" in hear(s, b"\r\n\r\n")
        s.sendall(body)
        assert b" 201 " in hear(s)


def test_pipelined_requests_are_answered(server):
    one = b"GET /api/v1/health HTTP/1.1\r\n" + HOST + b"\r\n"
    last = b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    said = server.raw(one * 50 + last)
    assert said.count(b"HTTP/1.1 200 OK") == 50 and said.count(b"HTTP/1.1 401 ") == 1


def test_http_1_0_requests_are_answered(server):
    assert server.raw(b"GET /api/v1/health HTTP/1.0\r\n\r\n").count(b'"status":"ok"') == 1
    said = server.raw(b"GET /api/v1/health HTTP/1.0\r\nHost: evil.example\r\n\r\n")
    assert b" 403 " in said


@pytest.mark.parametrize("headers", [
    b"Host: localhost\r\nHost: localhost\r\n", b"Host: localhost\r\nHost: evil.example\r\n", b"",
    HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n",
    HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    HOST + b"Transfer-Encoding: xchunked\r\n", HOST + b"Content-Length: -5\r\n",
    HOST + b"Content-Length: +5\r\n", HOST + b"Content-Length: 0x5\r\n", HOST + b"Content-Length : 5\r\n",
    HOST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"])
def test_ambiguous_http_requests_are_refused(server, headers):
    smuggled = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    said = server.raw(b"POST /api/v1/session HTTP/1.1\r\n" + headers + b"\r\n" + smuggled)
    assert re.match(rb"HTTP/1\.\d (400|413) ", said), said
    assert b'"status":"ok"' not in said


AUTHORIZED = b"Authorization: Bearer %s\r\n"


@pytest.mark.parametrize("head", [
    b"GET /api/v1/jobs\0x HTTP/1.1\r\n" + HOST + AUTHORIZED,
    b"GET /api/v1/jobs?limit=1\0x HTTP/1.1\r\n" + HOST + AUTHORIZED,
    b"GET\0 /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED,
    b"GET  /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED,
    b"GET /api/v1/jobs x HTTP/1.1\r\n" + HOST + AUTHORIZED,
    b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\0.evil.example\r\n" + AUTHORIZED,
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Authorization: Bearer %s\0x\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X\0: y\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"\0X: y\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X: y\rz\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X: y\x01z\r\n",
    b"GET /api/v1/jobs HTTP/1.1\n" + HOST + AUTHORIZED,
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + b"X: y\n" + AUTHORIZED,
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED[:-2] + b"\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X: y\r\n z\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Authori: Bearer %s\r\n zation: x\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X: y\r\n \r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\n X: y\r\n" + HOST + AUTHORIZED])
def test_malformed_http_requests_are_refused(server, head):
    token = server.token.encode()
    good = b"GET /api/v1/jobs HTTP/1.1\r\n" + HOST + AUTHORIZED + b"X:\r\nY: \t z \r\n\r\n"
    assert server.raw(good.replace(b"%s", token), b"\r\n").startswith(b"HTTP/1.1 200 ")
    said = server.raw(head.replace(b"%s", token) + b"\r\n", b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 ") or (REFUSES_ITSELF and not said), said
    # The malformed request is also sent as the second request on a connection.
    said = server.raw((good + head).replace(b"%s", token) + b"\r\n", b" 400 ")
    assert said.count(b"HTTP/1.1 200 ") == 1, said


@pytest.mark.parametrize("headers, status", [
    (b"Content-Length: x\r\n", b"400"), (b"Content-Length: \r\n", b"400"), (b"Content-Length: 5x\r\n", b"400"),
    (b"Content-Length: -5\r\n", b"400"), (b"Content-Length: +5\r\n", b"400"), (b"Content-Length: 0x5\r\n", b"400"),
    (b"Content-Length: 99999999999999999999\r\n", b"400"), (b"Content-Length: 9999999999\r\n", b"413"),
    (b"Content-Length: 5x\r\nContent-Length: 5\r\n", b"400")])
def test_invalid_content_length_gets_exactly_one_response(server, headers, status):
    for line in (b"POST /api/v1/session HTTP/1.1\r\n", b"GET /api/v1/health HTTP/1.0\r\n"):
        said = server.raw(line + HOST + b"Content-Type: application/json\r\n" + headers + b"\r\n")
        assert said.startswith(b"HTTP/1.") and said.count(b"HTTP/1.") == 1, said
        if REFUSES_ITSELF and b"<html>" in said:
            assert said.split()[1] in (b"400", b"413"), said
            continue
        assert said.split()[1] == status, said
        head, body = said.split(b"\r\n\r\n", 1)
        assert b"nosniff" in head and json.loads(body)["error"]["status"] == int(status)


def test_missing_host_header_gets_exactly_one_response(server):
    said = server.raw(b"GET /api/v1/health HTTP/1.1\r\n\r\n", b"</html>" if REFUSES_ITSELF else b'"message"')
    assert said.startswith(b"HTTP/1.1 400 ") and said.count(b"HTTP/1.1 4") == 1 and b"Host" in said


def test_oversized_request_headers_are_refused(server):
    said = server.raw(b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 100000 + b"\r\n\r\n", b"\r\n")
    assert re.match(rb"HTTP/1\.\d (4\d\d) ", said), said
    said = server.raw(b"GET /" + b"y" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", b"\r\n")
    assert re.match(rb"HTTP/1\.\d (4\d\d) ", said), said
    assert server.get("/health").status == 200


def nonsense(dice, good):
    data = bytearray(dice.choice(good))
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(data))
        what = dice.randrange(5)
        if what == 0:
            data[at] = dice.randrange(256)
        elif what == 1:
            del data[at:at + dice.randint(1, 20)]
        elif what == 2:
            data[at:at] = data[at:at + dice.randint(1, 40)]
        elif what == 3:
            data[at:at] = bytes(dice.randrange(256) for _ in range(dice.randint(1, 40)))
        else:
            data[at:at] = dice.choice([b"\r\n", b"\n", b"\0", b"%", b"%00", b"../", b"A" * 5000])
        if not data:
            data = bytearray(b"\r\n")
    return data


def nonsense_at_once(server, requests):
    """Sends each request on its own connection; reads the responses only after all requests are sent."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port),
                                                                timeout=PATIENCE_S)) for _ in requests]
        for s, data in zip(sockets, requests):
            with contextlib.suppress(OSError):
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
        for s, data in zip(sockets, requests):
            said = hear(s)
            assert said == b"" or re.match(rb"HTTP/1\.[01] [1-5]\d\d ", said), (data, said)


def test_random_bytes_get_an_error_or_a_closed_connection(server):
    """Sends mutated valid requests (bytes changed, cut or repeated) and noise, from a fixed seed. The server must
    survive."""
    dice = random.Random(8)
    good = [b"GET /api/v1/jobs?limit=5 HTTP/1.1\r\n" + HOST + b"\r\n",
            b"POST /api/v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: 22\r\n\r\n{\"command\": [\"false\"]}",
            b"POST /api/v1/session HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"tok\r\n9\r\nen\": \"x\"}\r\n0\r\n\r\n",
            b"GET /api/v1/live HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"]
    before = server.get("/jobs").json()["jobs"][0]["id"]
    for _ in range(6):
        nonsense_at_once(server, [nonsense(dice, good) for _ in range(50)])
    assert server.get("/health").json()["status"] == "ok"
    assert server.get("/jobs").json()["jobs"][0]["id"] == before


def test_connection_is_freed_if_a_waiting_client_disconnects(server):
    number = server.submit("sleep", "600")
    server.wait(number, "running")
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as s:
            s.sendall(f"GET /api/v1/jobs/{number}?until=ended&timeout_s=60 HTTP/1.1\r\n".encode() + HOST +
                      f"Authorization: Bearer {server.token}\r\n\r\n".encode())
    wait_for(lambda: server.get("/machine").json()["server"]["connections"] <= 2, "connections to end")
    server.post(f"/jobs/{number}/cancel", {"grace_s": 0})
    assert server.wait(number)["state"] == "cancelled"


def test_number_of_waiting_requests_is_bounded(server):
    number = server.submit("sleep", "600")
    server.wait(number, "running")
    line = (f"GET /api/v1/jobs/{number}?until=ended&timeout_s=60 HTTP/1.1\r\n".encode() + HOST +
            f"Authorization: Bearer {server.token}\r\n\r\n".encode())
    with contextlib.ExitStack() as stack:
        waiting, give_up = set(), time.monotonic() + PATIENCE_S
        for _ in range(300):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            s.sendall(line)
            waiting.add(s)
        # The server may answer waiting requests in any order.
        while len(waiting) > 256 and time.monotonic() < give_up:
            for s in select.select(waiting, [], [], 1)[0]:
                assert b" 429 " in hear(s, b"\r\n\r\n")
                waiting.remove(s)
        assert len(waiting) == 256
        assert server.get("/health").status == 200
        server.post(f"/jobs/{number}/cancel", {"grace_s": 0})
        assert all(b" 200 " in hear(s, b"\r\n\r\n") for s in waiting)


def asked_on(stack, server, path, token, more=b""):
    """Opens a connection and sends a request for PATH."""
    s = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
    s.sendall(b"GET /api/v1" + path.encode() + b" HTTP/1.1\r\n" + HOST + more +
              b"Authorization: Bearer " + token.encode() + b"\r\n\r\n")
    return s


def test_read_only_clients_cannot_take_all_slots_for_waiting_requests(server):
    number = server.submit("sleep", "600")
    server.wait(number, "running")
    wait = f"/jobs/{number}?until=ended&timeout_s=60"
    log = f"/jobs/{number}/log?offset=0&wait_s=60"
    with contextlib.ExitStack() as stack:
        readers = {asked_on(stack, server, wait, server.reader) for _ in range(300)}
        give_up = time.monotonic() + PATIENCE_S
        while len(readers) > 128 and time.monotonic() < give_up:
            for s in select.select(readers, [], [], 1)[0]:
                assert b" 429 " in hear(s, b"\r\n\r\n")
                readers.remove(s)
        assert len(readers) == 128
        own = [asked_on(stack, server, path, server.token) for path in [wait, log] * 50]
        # The waiting requests of other clients must not delay the owner's requests.
        assert server.post(f"/jobs/{number}/checkpoint", {}).status == 409
        assert select.select(own, [], [], 0)[0] == []
        server.post(f"/jobs/{number}/cancel", {"grace_s": 0})
        assert all(b" 200 " in hear(s, b"\r\n\r\n") for s in [*own, *readers])


def test_checkpoint_request_is_accepted_while_256_requests_wait(server):
    number = server.submit("sh", "-c", "trap : USR1; while :; do sleep 0.1; done",
                           options={"checkpoint-signal": "USR1"})
    server.wait(number, "running")
    with contextlib.ExitStack() as stack:
        waiting = {asked_on(stack, server, f"/jobs/{number}?until=ended&timeout_s=60", server.token)
                   for _ in range(270)}
        give_up = time.monotonic() + PATIENCE_S
        while len(waiting) > 256 and time.monotonic() < give_up:
            for s in select.select(waiting, [], [], 1)[0]:
                assert b" 429 " in hear(s, b"\r\n\r\n")
                waiting.remove(s)
        assert server.post(f"/jobs/{number}/checkpoint", {}).status == 202
        server.post(f"/jobs/{number}/cancel", {"grace_s": 0})
    server.wait(number)


def test_owner_can_connect_while_read_only_users_take_all_connections():
    upgrade = (b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
    with serving("--max-connections", "32", "--max-viewers", "8") as s:
        number = s.submit("sleep", "600")
        s.wait(number, "running")
        with contextlib.ExitStack() as stack:
            for path, more in (("/live", upgrade), (f"/jobs/{number}?until=ended&timeout_s=60", b"")):
                for _ in range(40):
                    asked_on(stack, s, path, s.reader, more)
            for data in (b"", b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\n") * 30:
                idle = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S))
                idle.sendall(data)
            for _ in range(20):
                assert s.get("/jobs").status == 200
                assert s.get("/health", unix=True).status == 200
            viewers = [asked_on(stack, s, "/live", s.token, upgrade) for _ in range(4)]
            assert all(b" 101 " in hear(viewer, b"\r\n\r\n") for viewer in viewers)
        # It takes a while until the server notices all closed connections.
        wait_for(lambda: s.get("/jobs", token=s.reader).status == 200, "a connection for a reader")


def kept_by(server):
    """Returns the server's number of descriptors, its number of child processes and its anonymous memory. File-backed
    memory is excluded because code may be paged out and in."""
    pid = server.process.pid
    status = open(f"/proc/{pid}/status").read()
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return (len(os.listdir(f"/proc/{pid}/fd")), len(children),
            int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10)


@plain
def test_server_memory_and_descriptors_are_constant_under_requests(server, done):
    paths = ["/jobs", f"/jobs/{done}", "/machine", f"/jobs/{done}/log", f"/jobs/{done}/events",
             f"/jobs/{done}/run", f"/jobs/{done}/samples?points=100", f"/jobs/{done}/verdict",
             "/jobs/999999", "/openapi.json", f"/jobs/{done}/log?tail=5", "/jobs?limit=x"]

    def round_of_all(count):
        for i in range(count):
            assert server.get(paths[i % len(paths)]).status in (200, 400, 404)

    wait_for(lambda: not server.get("/jobs?state=active").json()["jobs"], "the jobs of others to end")
    round_of_all(120)
    before = kept_by(server)
    round_of_all(240 if IS_SANITIZED else 1200)  # sanitizers use too much memory for more rounds
    wait_for(lambda: kept_by(server)[0] <= before[0] + 2, "descriptors to go")
    wait_for(lambda: kept_by(server)[1] == 0, "children to go")
    # AddressSanitizer keeps freed memory in quarantine, so a sanitized server grows.
    assert IS_SANITIZED or kept_by(server)[2] < before[2] + (4 << 20)


# ---- start and end of the server ----

def said_by(*arguments):
    return run_ebb("serve", *arguments)


def test_second_server_with_the_same_state_folder_is_refused(server):
    result = said_by("--state-dir", server.state, "--listen", "127.0.0.1:0", "--gpus", "0")
    assert result.returncode == 2 and result.stderr.splitlines()[-1].startswith("ebb: serve: ")
    assert server.get("/health", unix=True).json()["status"] == "ok"


def test_server_refuses_a_port_in_use(server, tmp_path):
    result = said_by("--state-dir", tmp_path / "s", "--listen", f"127.0.0.1:{server.port}", "--gpus", "0")
    assert result.returncode == 2 and "cannot listen: " in result.stderr


@pytest.mark.parametrize("arguments, word", [
    (["--listen", "7433"], "7433"), (["--listen", "example.org:80"], "example.org"),
    (["--listen", "127.0.0.1:99999"], "99999"), (["--slots", "0"], "0"), (["--gpus", "many"], "many"),
    (["--keep", "long"], "long"), (["--memory", "x"], "x"), (["--log-max", "1K"], "64K"),
    (["--log-level", "loud"], "loud"), (["--no-auth", "--listen", "0.0.0.0:0"], "--no-auth"),
    (["--no-auth", "--listen", "[::]:0"], "--no-auth"), (["--allow-host", "a_b"], "a_b"),
    (["--config", "/nonexistent"], "/nonexistent"), (["--import", "/nonexistent"], "/nonexistent"),
    (["--state-dir", "/dev/null/x"], "/dev/null"), (["--socket", "/" + "x" * 200], "too long"),
    (["extra"], "extra")])
def test_invalid_serve_options_are_refused(tmp_path, arguments, word):
    base = [] if "--state-dir" in arguments else ["--state-dir", str(tmp_path / "state")]
    for more in ([], ["--check"]):
        result = said_by(*base, "--gpus", "0", *arguments, *more) if "--gpus" not in arguments else \
            said_by(*base, *arguments, *more)
        assert result.returncode == 2, result
        last = result.stderr.splitlines()[-1]
        assert last.startswith("ebb: serve: ") and word in last, last
    assert not (tmp_path / "state" / "sock").exists()


def test_option_check_of_serve_reports_ok_and_creates_nothing(tmp_path):
    result = said_by("--state-dir", tmp_path / "state", "--check")
    assert (result.returncode, result.stdout) == (0, "the configuration is valid\n")
    assert not (tmp_path / "state").exists()


def test_token_file_readable_by_others_is_refused(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "token").write_text("x" * 64)
    (state / "token").chmod(0o644)
    for more in ([], ["--check"]):
        result = said_by("--state-dir", state, "--listen", "127.0.0.1:0", "--gpus", "0", *more)
        assert result.returncode == 2 and "chmod 600" in result.stderr


@pytest.mark.parametrize("kind, name", [
    *(("pipe", name) for name in ("sessions", "token", "token.read-only", "jobs.db", "locks", "runs", "sock")),
    *(("folder", name) for name in ("sessions", "token", "token.read-only", "jobs.db", "sock")),
    ("link", "sessions"), ("link", "token")])
def test_state_file_of_a_wrong_type_is_refused_at_server_start(tmp_path, kind, name):
    """The server must neither block on such a file nor overwrite it."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("/etc/passwd", path)}
    make[kind](state / name)
    result = said_by("--state-dir", state, "--listen", "127.0.0.1:0", "--gpus", "0")
    sentence = result.stderr.splitlines()[-1]
    assert result.returncode == 2 and sentence.startswith("ebb: serve: ") and name in sentence, result


def test_command_line_overrides_options_of_the_serve_config_file(tmp_path):
    config = tmp_path / "serve.conf"
    config.write_text("# a server\nslots = 3\nmemory = 1G\nkeep = 2d,10,1G\nallow-host = a.example, b.example\n"
                      "log-format = text\ngrace = 1s\n")
    with serving("--config", config) as s:
        room = s.get("/machine").json()["room"]
        assert (room["slots"]["all"], room["memory"]["all_bytes"]) == (3, 1 << 30)
        assert s.get("/jobs", headers={"Host": "b.example:80"}).status == 200
        assert " info  listening: " in s.said()
    with serving("--config", config, "--slots", "5") as s:
        assert s.get("/machine").json()["room"]["slots"]["all"] == 5


@pytest.mark.parametrize("text, words", [
    ("slotz = 3\n", (":1", "slotz", "slots")), ("\nslots = none\n", (":2", "none")),
    ("slots = 1\nslots = 2\n", (":2", "already")), ("listen\n", (":1", "listen")),
    ("no-auth = perhaps\n", (":1", "perhaps")), ("\0", ("text",)), ("config = x\n", (":1", "config"))])
def test_error_for_an_invalid_serve_config_names_the_line(tmp_path, text, words):
    config = tmp_path / "serve.conf"
    config.write_text(text)
    result = said_by("--config", config, "--state-dir", tmp_path / "s", "--check")
    assert result.returncode == 2
    for word in words:
        assert word in result.stderr


def test_server_replaces_a_stale_socket_but_no_other_file(tmp_path):
    with serving() as s:
        s.process.kill()
        s.process.wait()
        assert s.socket.exists()
        s.start()
        assert s.get("/health", unix=True).status == 200
        assert s.stop() == 0
        assert not s.socket.exists()
        s.socket.write_text("mine")
        result = said_by("--state-dir", s.state, "--listen", "none", "--gpus", "0")
        assert result.returncode == 2 and "is not a socket" in result.stderr
        assert s.socket.read_text() == "mine"
        s.socket.unlink()


def test_server_started_with_listen_none_uses_only_its_unix_socket():
    with serving(listen="none") as s:
        assert s.ready.read_text() == f"unix:{s.socket}\n"
        assert s.get("/health", token=None, unix=True).status == 200
        assert s.post("/jobs", {"command": ["true"]}, token=None, unix=True).status == 201
        wait_for(lambda: s.get("/jobs/1", token=None, unix=True).json()["state"] == "succeeded", "the job")
        assert s.stop() == 0
        s.process = None


def test_server_without_authentication_still_checks_host_header():
    with serving("--no-auth") as s:
        assert s.get("/jobs", token=None).status == 200
        assert s.post("/jobs", {"command": ["true"]}, token=None).status == 201
        assert s.get("/jobs", token=None, headers={"Host": "evil.example"}).status == 403
        assert s.post("/jobs", {"command": ["true"]}, token=None,
                      headers={"Origin": "http://evil.example"}).status == 403


def test_server_stops_at_once_and_jobs_continue(tmp_path):
    flag = tmp_path / "flag"
    with serving("--slots", "2") as s:
        number = s.submit("sh", "-c", f"until [ -e {flag} ]; do sleep 0.05; done; echo over")
        s.wait(number, "running")
        with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S) as waits:
            waits.sendall(f"GET /api/v1/jobs/{number}?until=ended&timeout_s=60 HTTP/1.1\r\n".encode() + HOST +
                          f"Authorization: Bearer {s.token}\r\n\r\n".encode())
            assert s.get("/health").status == 200
            s.process.send_signal(1)  # SIGHUP must not end the server
            assert s.get("/health").status == 200
            assert s.stop() == 0
            assert hear(waits) == b""
        flag.touch()
        s.start()
        job = s.wait(number)
        assert job["state"] == "succeeded"
        assert s.get(f"/jobs/{number}/log").body == b"over\n"


def test_server_log_consists_of_json_lines(server, done):
    lines = [json.loads(line) for line in server.said().splitlines()]
    assert {"room", "listening", "token", "job_state"} <= {line["event"] for line in lines}
    assert all(set(line) >= {"t", "level", "event", "message"} for line in lines)
    assert any(line.get("job") == done and line["message"].startswith("succeeded") for line in lines)


def test_server_notifies_systemd_of_start_and_stop(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(PATIENCE_S)
        with serving(env={"NOTIFY_SOCKET": path}) as server:
            assert s.recv(100) == b"READY=1\n"
            server.stop()
            assert s.recv(100) == b"STOPPING=1\n"
            server.process = None


def test_full_disk_is_reported_until_space_is_free_again(tmp_path):
    with small_disk(tmp_path / "small") as folder, serving(state=folder / "state") as s:
        s.wait(s.submit("true"))
        fill(folder / "filler")
        refused = None
        # The database may still have free pages for a few jobs, so several jobs are submitted.
        for _ in range(200):
            answer = s.post("/jobs", {"command": ["true"], "env": {"X": "y" * 20000}})
            if answer.status != 201:
                refused = answer
                break
        assert refused is not None and refused.status == 503 and refused.message()
        assert s.get("/jobs").status == 200
        (folder / "filler").unlink()
        wait_for(lambda: s.post("/jobs", {"command": ["true"]}).status == 201, "room again")


def drip(_folder):
    """Sends headers and bodies one byte at a time, until all connections are closed or a time limit is reached. Returns
    the number of connections still open."""
    head = b"POST /api/v1/session HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    with serving() as s, contextlib.ExitStack() as stack:
        drips = [stack.enter_context(socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S))
                 for _ in range(3)]
        drips[0].sendall(b"G")
        drips[1].sendall(head)
        drips[2].sendall(head + b"Content-Length: 1000\r\n\r\n{")
        open_ones = set(range(3))
        until = time.monotonic() + 2 * PATIENCE_S
        while open_ones and time.monotonic() < until:
            time.sleep(0.5)
            for i in list(open_ones):
                drips[i].setblocking(False)
                try:
                    drips[i].send(b"x")
                    if drips[i].recv(1000) == b"":
                        open_ones.discard(i)
                except BlockingIOError:
                    continue
                except OSError:
                    open_ones.discard(i)
        return len(open_ones)


dripped = begun_early(["test_slow_clients_are_disconnected"], drip)


def test_slow_clients_are_disconnected(dripped):
    assert dripped.result() == 0


def test_requests_of_common_http_clients_succeed(server, done):
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}",
                      headers={"Authorization": f"Bearer {server.token}"}) as client:
        assert client.get(f"/api/v1/jobs/{done}").json()["id"] == done
        answer = client.post("/api/v1/jobs", json={"command": ["true"]})
        assert answer.status_code == 201
        for _ in range(20):
            assert client.get("/api/v1/health").status_code == 200


def test_http_connection_stays_open_after_error_responses(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.connect()
        own = connection.sock.getsockname()
        for path, status in (("/api/v1/health", 200), ("/api/v1/jobs", 401), ("/nosuch", 404),
                             ("/api/v1/health", 200)):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert (answer.status, connection.sock.getsockname()) == (status, own)


def test_option_import_of_serve_creates_jobs_from_a_job_file(tmp_path):
    file = tmp_path / "training_jobs.json"
    file.write_text(json.dumps({"a1": {"job_id": "a1", "status": "completed", "created_at": 1700000000},
                                "a2": {"job_id": "a2", "status": "running", "created_at": 1700000100}}))
    with serving("--import", file, "--job-file", tmp_path / "kept.json") as s:
        jobs = s.get("/jobs").json()["jobs"]
        assert len(jobs) == 2 and {job["state"] for job in jobs} <= {"succeeded", "lost"}
        s.wait(s.submit("true"))
        wait_for(lambda: (tmp_path / "kept.json").exists() and
                 len(json.loads((tmp_path / "kept.json").read_text())) >= 1, "the job file")
