"""Tests the live stream with an independent client, the Python package websockets."""

import asyncio
import json
import pathlib
import sys

import pytest

websockets = pytest.importorskip("websockets")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "cmd"))
from live_stream import Server  # noqa: E402

PATIENCE_S = 180


async def connect(server, **options):
    # The client must not time out before the test does.
    options.update(open_timeout=PATIENCE_S, ping_interval=None)
    return await websockets.connect(f"ws://127.0.0.1:{server.port}/api/v1/live", **options)


async def message(socket, kind):
    while True:
        got = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_S))
        if got["type"] == kind:
            return got


async def want(socket, **wishes):
    """Sends a subscription, then a ping. Once the ping is answered, the server has also received
    the subscription."""
    await socket.send(json.dumps(wishes))
    await asyncio.wait_for(await socket.ping(), PATIENCE_S)


async def close_code(socket):
    try:
        while True:
            await asyncio.wait_for(socket.recv(), PATIENCE_S)
    except websockets.ConnectionClosed as closed:
        return closed.rcvd.code


def test_viewer_receives_states_samples_and_log_of_a_job_in_order():
    async def follow(server):
        socket = await connect(server)
        assert (await message(socket, "hello"))["boot"]
        server.job(7, "queued")
        await want(socket, jobs=True, job=7, log=True)
        for state in ("starting", "running"):
            server.job(7, state)
        server.do("live", id=7, message={"type": "sample", "t_s": 0.5, "job_bytes": 1 << 40})
        server.do("log", id=7, text="step 1 \u00fc\n")
        server.job(7, "succeeded")
        seen = []
        while "succeeded" not in seen:
            seen.append((await message(socket, "job"))["job"]["state"])
            if seen[-1] == "running":
                assert (await message(socket, "sample"))["job_bytes"] == 1 << 40
                assert (await message(socket, "log"))["text"] == "step 1 \u00fc\n"
        assert seen[-3:] == ["starting", "running", "succeeded"]
        await socket.close()
    with Server() as server:
        asyncio.run(follow(server))


def test_each_of_many_viewers_receives_every_message():
    async def watch(server):
        sockets = await asyncio.gather(*(connect(server) for _ in range(50)))
        await asyncio.gather(*(want(socket, job=1) for socket in sockets))
        for i in range(20):
            server.do("live", id=1, message={"type": "event", "act": "warn", "i": i})
        for socket in sockets:
            assert [(await message(socket, "event"))["i"] for _ in range(20)] == list(range(20))
        await asyncio.gather(*(socket.close() for socket in sockets))
    with Server() as server:
        server.job(1, "running")
        asyncio.run(watch(server))


def test_websocket_message_sent_in_fragments_is_read():
    async def talk(server):
        socket = await connect(server, compression="deflate")
        await socket.send(["{", '"job"', ": 1", "}"])
        assert (await message(socket, "job"))["job"]["id"] == 1
        await socket.close()
    with Server() as server:
        server.job(1, "running")
        asyncio.run(talk(server))


@pytest.mark.parametrize("data, code", [(b"binary", 1003), (" " * 65537, 1009)],
                         ids=["binary", "too long"])
def test_invalid_viewer_message_closes_the_stream_with_a_reason(data, code):
    async def send(server):
        socket = await connect(server)
        await socket.send(data)
        assert await close_code(socket) == code
    with Server() as server:
        asyncio.run(send(server))


def test_stopping_server_closes_viewers_with_a_status_code():
    async def stay(server):
        socket = await connect(server)
        server.process.stdin.close()
        assert await close_code(socket) == 1001
    with Server() as server:
        asyncio.run(stay(server))
