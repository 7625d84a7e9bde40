"""Tests the live stream: subscriptions, refused connections, and hostile clients."""

import contextlib
import json
import random
import struct

import pytest

from commands import IS_SANITIZED, PATIENCE_S, plain, wait_for
from live_stream import (BINARY, CLOSE, PING, PONG, TEXT, Server, Viewer, frame, random_key)


@pytest.fixture
def server():
    with Server() as running:
        yield running


def test_websocket_handshake_returns_the_accept_key(server):
    with Viewer(server) as viewer:
        assert viewer.status == "HTTP/1.1 101 Switching Protocols"
        assert viewer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert viewer.headers["upgrade"] == "websocket"
        assert "upgrade" in viewer.headers["connection"].lower()
        hello = viewer.message()
        assert hello["type"] == "hello" and hello["boot"] and hello["version"]


@pytest.mark.parametrize("changes, status, sentence", [
    ({"Upgrade": None}, 426, 'send the headers "Upgrade: websocket" and "Connection: Upgrade"'),
    ({"Upgrade": "h2c"}, 426, 'send the headers "Upgrade: websocket" and "Connection: Upgrade"'),
    ({"Connection": "close"}, 426, 'send the headers "Upgrade: websocket" and "Connection: Upgrade"'),
    ({"Sec_WebSocket_Version": "8"}, 426, 'unsupported Sec-WebSocket-Version "8"'),
    ({"Sec_WebSocket_Version": None}, 426, 'unsupported Sec-WebSocket-Version ""'),
    ({"Sec_WebSocket_Key": None}, 400, "is not 16 bytes in base64"),
    ({"Sec_WebSocket_Key": "c2hvcnQ="}, 400, "is not 16 bytes in base64"),
    ({"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ!="}, 400, "is not 16 bytes in base64"),
])
def test_invalid_websocket_handshake_is_refused(server, changes, status, sentence):
    with Viewer(server, **changes) as viewer:
        assert viewer.status.split()[1] == str(status)
        if "Version" in "".join(changes):
            assert viewer.headers["sec-websocket-version"] == "13"
        body = viewer.take(int(viewer.headers["content-length"]))
        assert sentence in json.loads(body)["error"]["message"]


def test_viewer_beyond_the_maximum_number_is_refused():
    with Server(viewers=2) as server:
        first, second = Viewer(server), Viewer(server)
        with Viewer(server) as third:
            assert third.status.split()[1] == "503"
        first.socket.close()
        wait_for(lambda: server.counts()["viewers"] == 1, "the first to be gone")
        with Viewer(server, Sec_WebSocket_Key=random_key()) as third:
            assert third.status.split()[1] == "101"
        second.socket.close()


def test_websocket_frame_sent_with_the_handshake_is_processed(server):
    server.job(17, "running")
    with Viewer(server, early=frame(TEXT, b'{"job": 17}')) as viewer:
        assert viewer.message("job")["job"] == {"id": 17, "state": "running"}


def test_viewer_receives_only_subscribed_messages(server):
    server.job(1, "running")
    server.job(2, "queued")
    with Viewer(server) as everything, Viewer(server) as one, Viewer(server) as nothing:
        everything.want(jobs=True)
        assert [m["type"] for m in one.want(job=1)] == ["hello", "job"]
        nothing.want()
        server.job(2, "starting")
        server.do("live", id=1, message={"type": "sample", "t_s": 1.5})
        server.do("live", id=1, message={"type": "verdict", "verdict": "leak"})
        server.do("live", id=1, message={"type": "nonsense"})
        server.job(1, "succeeded")
        server.do("removed", id=2)
        assert [(m["type"], m.get("id", m.get("job", {}).get("id")))
                for m in (everything.message() for _ in range(3))] == [
                    ("job", 2), ("job", 1), ("removed", 2)]
        assert [one.message()["type"] for _ in range(3)] == ["sample", "verdict", "job"]
        assert nothing.want() == []


def test_new_subscription_replaces_the_previous_subscription(server):
    server.job(1, "running")
    server.job(2, "running")
    with Viewer(server) as viewer:
        viewer.want(job=1, log=True)
        viewer.want(job=2)
        server.do("live", id=1, message={"type": "event", "act": "warn"})
        server.do("log", id=1, text="one\n")
        server.do("live", id=2, message={"type": "event", "act": "kill"})
        assert viewer.message()["act"] == "kill"
        viewer.want(job=None)
        server.do("live", id=2, message={"type": "event", "act": "kill"})
        assert viewer.want() == []


def test_viewer_of_a_nonexistent_job_receives_a_removed_message(server):
    with Viewer(server) as viewer:
        assert viewer.want(job=99)[-1] == {"type": "removed", "id": 99}


@pytest.mark.parametrize("text, part", [
    ("", "not valid JSON"),
    ("[1]", "an object like"),
    ('{"job": "17"}', "job: must be a job id or null"),
    ('{"job": 0}', "job: must be a job id or null"),
    ('{"jobs": 1}', "jobs: must be true or false"),
    ('{"nobs": true}', 'unknown key "nobs"'),
    ("[" * 1000, "nested more than 64 levels"),
], ids=lambda value: value[:20])
def test_invalid_subscription_is_refused_and_changes_nothing(server, text, part):
    with Viewer(server) as viewer:
        viewer.want(jobs=True)
        viewer.send(TEXT, text.encode())
        assert part in viewer.message("error")["message"]
        server.job(1, "queued")
        assert viewer.message()["type"] == "job"


def test_status_of_the_machine_is_sent_periodically():
    with Server(look=20) as server, Viewer(server) as viewer:
        viewer.want(machine=True)
        for _ in range(3):
            assert viewer.message("machine")["name"] == "made up"


# ---- the log ----

def test_viewer_receives_log_output_written_after_the_subscription(server):
    server.job(1, "running")
    with Viewer(server) as viewer, Viewer(server) as later:
        server.do("log", id=1, text="before\n")
        viewer.want(job=1, log=True)
        server.do("log", id=1, text="after\n")
        assert viewer.message() == {"type": "log", "id": 1, "offset": 7, "text": "after\n"}
        later.want(job=1, log=True)
        server.do("log", id=1, text="both\n")
        for one in (viewer, later):
            assert one.message() == {"type": "log", "id": 1, "offset": 13, "text": "both\n"}


def test_long_log_message_is_never_split_inside_a_character(server):
    server.job(1, "running")
    with Viewer(server) as viewer:
        viewer.want(job=1, log=True)
        server.do("log", id=1, text="x" + "ä€😀" * 5000)
        text = b""
        while len(text) < 1 + 9 * 5000:
            got = viewer.message("log")
            assert got["offset"] == len(text) and len(got["text"].encode()) <= 65536
            text += got["text"].encode()
        assert text.decode() == "x" + "ä€😀" * 5000


def test_log_output_is_skipped_if_the_viewer_reads_too_slowly(server):
    server.job(1, "running")
    with Viewer(server) as viewer:
        viewer.want(job=1, log=True)
        server.do("log", id=1, text="0123456789abcde\n", repeat=100000)
        end, skipped = 0, 0
        while end < 1600000:
            got = viewer.message()
            skipped += got["type"] == "skipped" and got["what"] == "log"
            if got["type"] == "log":
                end = got["offset"] + len(got["text"])
        server.do("live", id=1, message={"type": "event", "act": "warn"})
        while (got := viewer.message())["type"] != "event":
            skipped += got["type"] == "skipped" and got["what"] == "log"
        assert skipped == 1


def test_rest_of_the_log_is_sent_when_the_job_ends(server):
    server.job(1, "running")
    with Viewer(server) as viewer:
        viewer.want(job=1, log=True)
        # All jobs of the test server share one log.
        server.do("log", id=2, text="said to be another's\n")
        server.job(1, "succeeded")
        assert viewer.message()["text"] == "said to be another's\n"
        assert viewer.message()["job"]["state"] == "succeeded"


# ---- the WebSocket protocol ----

def test_pong_has_the_payload_of_the_ping(server):
    with Viewer(server) as viewer:
        viewer.message("hello")
        viewer.send(PING, b"x" * 125)
        assert viewer.frame() == (PONG, b"x" * 125)
        viewer.send(PONG, b"nobody asked")
        viewer.send(CLOSE, struct.pack(">H", 1000) + b"bye")
        assert viewer.closed()[0] == 1000
        with pytest.raises(EOFError):
            viewer.take(1)


def test_websocket_message_fragmented_around_a_ping_is_reassembled(server):
    server.job(17, "running")
    with Viewer(server) as viewer:
        viewer.message("hello")
        for i, byte in enumerate(b'{"job": 17}'):
            viewer.send(TEXT if i == 0 else 0, bytes([byte]), fin=i == 10)
            if i == 5:
                viewer.send(PING, b"p")
        assert viewer.frame() == (PONG, b"p")
        assert viewer.message()["job"]["id"] == 17


@pytest.mark.parametrize("data, code", [
    (frame(TEXT, b"{}", mask=b""), 1002),
    (frame(TEXT, b"{}", reserved=4), 1002),
    (frame(3, b""), 1002),
    (frame(11, b""), 1002),
    (frame(0, b"continues nothing"), 1002),
    (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    (frame(PING, b"p", fin=False), 1002),
    (frame(PING, b"p" * 126), 1002),
    (frame(CLOSE, struct.pack(">H", 1005)), 1002),
    (frame(BINARY, b"{}"), 1003),
    (frame(TEXT, b"\xff"), 1007),
    (frame(TEXT, b"\xc3", fin=False) + frame(0, b"\x28"), 1007),
    (frame(TEXT, b" " * 65537), 1009),
    (frame(TEXT, b"x", length=1 << 40), 1009),
    (frame(TEXT, b"", fin=False) + frame(0, b"", fin=False) * 80, 1008),
    (frame(TEXT, b"{}") * 300, 1008),
    (frame(PING, b"") * 300, 1008),
], ids=lambda value: value if isinstance(value, int) else value[:8].hex())
def test_websocket_protocol_error_closes_with_the_right_close_code(server, data, code):
    with Viewer(server) as viewer, Viewer(server) as neighbour:
        neighbour.want(jobs=True)
        viewer.socket.sendall(data)
        assert viewer.closed()[0] == code
        server.job(1, "running")
        assert neighbour.message()["type"] == "job"


def test_close_frame_without_a_code_is_answered_without_a_code(server):
    for data in (b"", b"\0"):
        with Viewer(server) as viewer:
            viewer.message("hello")
            viewer.send(CLOSE, data)
            assert viewer.frame() == (CLOSE, b"")
            with pytest.raises(EOFError):
                viewer.take(1)


def test_websocket_frame_length_with_the_highest_bit_set_is_refused(server):
    with Viewer(server) as viewer:
        viewer.message("hello")
        viewer.send(TEXT, b"x", length=1 << 63)
        with pytest.raises(EOFError):
            while viewer.frame()[0] != CLOSE:
                pass
            raise EOFError
    wait_for(lambda: server.counts()["viewers"] == 0, "it to be gone")


def test_random_bytes_of_one_viewer_do_not_affect_other_viewers(server):
    noise = random.Random(1)
    with Viewer(server) as neighbour:
        neighbour.want(jobs=True)
        for _ in range(150):
            with Viewer(server) as viewer:
                data = bytearray(frame(noise.choice((TEXT, BINARY, PING, CLOSE, 0)),
                                       noise.randbytes(noise.randrange(200)),
                                       fin=noise.random() < 0.7))
                for _ in range(noise.randrange(4)):
                    data[noise.randrange(len(data))] = noise.randrange(256)
                first = bytes(data[:noise.randrange(1, len(data) + 1)])
                rest = noise.randbytes(noise.randrange(300))
                # The server may close the connection after the first frame.
                with contextlib.suppress(ConnectionError):
                    viewer.socket.sendall(first)
                    viewer.socket.sendall(rest)
        server.job(1, "running")
        assert neighbour.message()["type"] == "job"
        wait_for(lambda: server.counts()["viewers"] == 1, "the others to be gone")


# ---- slow and unresponsive viewers ----

def flood(server):
    """Sends messages whose total size is many times that of all socket buffers."""
    for i in range(40):
        server.do("live", id=1, times=50, message={"type": "sample", "text": "s" * 1000, "round": i})
        server.do("live", id=1, times=20, message={"type": "mark", "text": "m" * 1000, "round": i})
        for job in range(1, 101):
            server.job(job, "running", round=i, text="j" * 200)
        server.do("live", id=1, message={"type": "verdict", "round": i})


def test_slow_viewer_receives_newest_state_of_each_job(server):
    server.job(1, "running")
    with Viewer(server, receive_bytes=4096) as slow:
        slow.want(jobs=True, job=1)
        flood(server)
        server.job(3, "cancelled")
        server.do("removed", id=4)
        server.counts()  # The server has sent all earlier messages by the time it answers this command.
        newest, skipped, samples = {}, set(), 0
        while len(newest) < 100 or newest[3] != "cancelled" or newest[4] != "removed" or any(
                value not in (39, "cancelled", "removed") for value in newest.values()):
            got = slow.message()
            if got["type"] == "job":
                newest[got["job"]["id"]] = got["job"].get("round", got["job"]["state"])
            elif got["type"] == "removed":
                newest[got["id"]] = "removed"
            elif got["type"] == "skipped":
                skipped.add(got["what"])
            samples += got["type"] == "sample"
        while skipped != {"sample", "mark"}:
            skipped.add(slow.message("skipped")["what"])
        assert samples < 2000


@plain
def test_viewer_that_never_reads_is_closed_with_code_1013():
    with Server(look=50, stuck=1500) as server:
        server.job(1, "running")
        idle = [Viewer(server, receive_bytes=4096) for _ in range(20)]
        for viewer in idle:
            viewer.want(jobs=True, job=1)
        before = server.rss_bytes()
        flood(server)
        server.counts()
        # AddressSanitizer keeps freed memory in quarantine, so a sanitized server grows.
        assert IS_SANITIZED or server.rss_bytes() - before < 20 * 256 * 1024 + (8 << 20)
        wait_for(lambda: server.counts()["skipped"] > 0, "something to be left out")
        # The server has already closed the connection of a viewer that starts to read only now.
        wait_for(lambda: all_closed(server), "them to be closed")
        assert idle[0].closed() == (1013, "the client has stopped reading messages")
        for viewer in idle:
            viewer.socket.close()
        wait_for(lambda: server.counts()["viewers"] == 0, "them to be gone")


def all_closed(server):
    """Returns whether the server has disconnected all viewers, so that it sends a new job state to none of them."""
    before = server.counts()["messages"]
    server.job(1, "running")
    return server.counts()["messages"] == before


def test_viewer_that_does_not_answer_pings_is_closed():
    with Server(look=50, ping=100, silent=5000) as server:
        with Viewer(server) as silent, Viewer(server) as alive:
            def answered():
                opcode, data = alive.frame()
                if opcode == PING:
                    alive.send(PONG, data)
                return server.counts()["messages"] and silent_code(silent)
            assert wait_for(answered, "the silent one to be closed") == 1013
            alive.want(jobs=True)


def silent_code(viewer):
    """Returns the close code, or None if no close frame has arrived."""
    viewer.socket.setblocking(False)
    try:
        viewer.more()
    except BlockingIOError:
        pass
    finally:
        viewer.socket.settimeout(PATIENCE_S)
    at = viewer.data.find(bytes([0x80 | CLOSE]))
    code = viewer.data[at + 2:at + 4] if at >= 0 else b""
    return struct.unpack(">H", code)[0] if len(code) == 2 else None


def test_viewer_that_ignores_a_close_frame_is_disconnected():
    with Server(look=50, goodbye=200) as server:
        with Viewer(server) as viewer:
            viewer.send(BINARY, b"")
            assert viewer.closed()[0] == 1003
            with pytest.raises(EOFError):
                viewer.take(1)
            assert server.counts()["viewers"] == 0


def test_viewer_with_an_incomplete_frame_does_not_delay_other_viewers():
    with Server(look=50, silent=5000) as server:
        with Viewer(server) as half, Viewer(server) as other:
            half.socket.sendall(frame(TEXT, b'{"jobs": true}')[:9])
            other.want(jobs=True)
            server.job(1, "queued")
            assert other.message()["type"] == "job"
            assert half.closed()[0] == 1013


def test_exiting_server_sends_each_viewer_a_close_code():
    with Server() as server:
        viewers = [Viewer(server) for _ in range(5)]
    for viewer in viewers:
        assert viewer.closed()[0] == 1001
        viewer.socket.close()
