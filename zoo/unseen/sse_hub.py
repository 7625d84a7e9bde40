"""A service without steps streams the progress of a training to its clients. Three in four clients disconnect early,
and the hub keeps the queue of each of them. --remove unsubscribes every client that disconnects. Does not use torch.
(encode/broadcaster #108, sse-starlette #209)"""
import asyncio
import json
import time

from tally import TINY, Tally, flag

CLIENTS = 10 if TINY else 400
EVERY, STAY = (0.01, 0.05) if TINY else (0.1, 1.0)
ROOM, TEXT = 64, 2048


class Hub:
    def __init__(self, remove):
        self.remove, self.queues = remove, set()

    def publish(self, number):
        for index, queue in enumerate(list(self.queues)):
            if not queue.full():
                text = json.dumps({"event": number, "client": index, "losses": [number * 0.001 + i for i in range(80)]})
                queue.put_nowait(text.ljust(TEXT - 1).encode() + b"\n")

    async def serve(self, reader, writer):
        queue = asyncio.Queue(ROOM)
        self.queues.add(queue)
        bye = asyncio.ensure_future(reader.readline())
        try:
            while not bye.done():
                writer.write(await queue.get())
                await writer.drain()
            if bye.exception() is None and bye.result():
                self.queues.discard(queue)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if not bye.cancel() and not bye.cancelled():
                bye.exception()
            writer.close()
            if self.remove:
                self.queues.discard(queue)

    def held(self):
        return sum(queue.qsize() for queue in self.queues) * (TEXT + 33)


async def client(number, port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = time.monotonic() + STAY
    while time.monotonic() < end:
        await reader.readline()
    if number % 4 == 0:
        writer.write(b"bye\n")
        await writer.drain()
        await asyncio.sleep(EVERY)
        writer.close()
    else:
        writer.transport.abort()


async def publish(hub):
    number = 0
    while True:
        hub.publish(number)
        number += 1
        await asyncio.sleep(0.002 if TINY else 0.05)


async def main():
    hub, tally, clients = Hub(flag("--remove")), Tally(0), []
    server = await asyncio.start_server(hub.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher = asyncio.create_task(publish(hub))
    began = time.monotonic()
    for number in range(1, CLIENTS + 1):
        clients = [task for task in clients if not task.done()] + [asyncio.create_task(client(number, port))]
        await asyncio.sleep(max(0.001, began + number * EVERY - time.monotonic()))
        tally.step(number, hub.held())
    tally.end()
    publisher.cancel()
    server.close()
    for task in clients:
        task.cancel()
    await asyncio.gather(publisher, *clients, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
