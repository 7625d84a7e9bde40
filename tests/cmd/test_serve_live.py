"""Tests the live stream of a real server: permissions, and the messages about a job from its start to its end."""

import pytest

from commands import PYTHON
from live_stream import Viewer
from serving import serving

LINES = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
for i in range(40):
    print("line", i, "\\u00fc", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def viewer_of(server, **headers):
    return Viewer(server, Host=f"127.0.0.1:{server.port}", **headers)


def allowed(server):
    return viewer_of(server, Authorization=f"Bearer {server.token}")


@pytest.mark.parametrize("headers, status", [
    ({}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Origin": "http://elsewhere.example"}, 403),
    ({"Host": "elsewhere.example"}, 403),
])
def test_unauthorized_viewer_is_refused_before_handshake(server, headers, status):
    if status == 403:
        headers = {**headers, "Authorization": f"Bearer {server.token}"}
    with Viewer(server, **{"Host": f"127.0.0.1:{server.port}", **headers}) as viewer:
        assert viewer.status.split()[1] == str(status)


def test_read_only_token_may_watch_the_live_stream(server):
    with viewer_of(server, Authorization=f"Bearer {server.reader}") as viewer:
        assert viewer.message()["type"] == "hello"


def test_session_key_is_accepted_in_the_websocket_protocol_header(server):
    answer = server.post("/session", {"token": server.reader}, token=None)
    cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
    protocol = {"Sec-WebSocket-Protocol": f"ebb, ebb-key.{answer.json()['key']}"}
    with viewer_of(server, **cookie, **protocol) as viewer:
        assert viewer.headers["sec-websocket-protocol"] == "ebb"
        assert viewer.message()["type"] == "hello"
    with viewer_of(server, **cookie) as viewer:
        assert viewer.status.split()[1] == "401"


def test_viewer_receives_state_log_and_samples_of_a_job(server, tmp_path):
    with allowed(server) as viewer:
        viewer.want(jobs=True)
        number = server.submit(PYTHON, "-c", LINES, tmp_path / "go", options={"interval": "100ms"})
        while viewer.message("job")["job"]["state"] != "running":
            pass
        viewer.want(jobs=True, job=number, log=True)
        seen, state, text = set(), "running", ""
        while state != "succeeded":
            got = viewer.message()
            seen.add(got["type"])
            if got["type"] == "job":
                state = got["job"]["state"]
            elif got["type"] == "log":
                assert got["offset"] == len(text.encode())
                text += got["text"]
            elif got["type"] == "sample":
                assert got["id"] == number
                if got["processes"]:  # A sample taken after the job's end lists no processes.
                    (tmp_path / "go").touch()
        assert {"job", "log", "sample"} <= seen
        # All output is sent before the message about the job's end.
        assert text == "".join(f"line {i} \u00fc\n" for i in range(40))
        assert text == server.get(f"/jobs/{number}/log").body.decode()


def test_server_sends_a_removed_message_for_a_nonexistent_job(server):
    number = server.submit("true")
    server.wait(number)
    with allowed(server) as viewer:
        assert viewer.want(job=number)[-1]["job"]["state"] == "succeeded"
        assert viewer.want(job=10 ** 6)[-1] == {"type": "removed", "id": 10 ** 6}


def test_machine_status_has_the_same_keys_in_live_stream_and_api(server):
    with allowed(server) as viewer:
        viewer.want(machine=True)
        machine = viewer.message("machine")
        machine.pop("type")
        assert machine.keys() == server.get("/machine").json().keys()
