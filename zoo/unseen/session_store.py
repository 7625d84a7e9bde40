"""A service answers in small batches and keeps at most 380 sessions. With --by-request there is a session per request,
but the limit counts users and is never reached. There are no epochs, and torch is not used."""
import asyncio
from collections import OrderedDict

import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, LIMIT = (10, 12) if TINY else (200, 380)
STATE = 40_000  # number of floats in the state of a session
BATCH = 4


class Store:
    def __init__(self, by_request):
        self.by_request, self.sessions, self.users = by_request, OrderedDict(), set()

    def put(self, user, request, state):
        self.sessions[(user, request) if self.by_request else user] = state
        self.users.add(user)
        if self.by_request:
            while len(self.users) > LIMIT:
                self.users.pop()
        else:
            while len(self.sessions) > LIMIT:
                self.sessions.popitem(last=False)

    def size(self):
        return sum(state.nbytes for state in self.sessions.values())


class Service:
    def __init__(self, store):
        self.store, self.queue = store, asyncio.Queue()
        self.weights = np.random.default_rng(1).random((200, 200), dtype=np.float32)

    def infer(self, user):
        state = np.full((200, 200), user % 13, dtype=np.float32) @ self.weights
        return state, float(state[0, 0])

    async def serve(self, tally, ebb):
        for n in range(1, STEPS + 1):
            for _ in range(BATCH):
                user, request, answer = await self.queue.get()
                state, said = self.infer(user)
                self.store.put(user, request, state)
                answer.set_result(said)
            tally.step(n, self.store.size())
            ebb.step(n)
            await asyncio.sleep(0)


async def ask(service):
    loop, request = asyncio.get_running_loop(), 0
    while True:
        answers = []
        for _ in range(BATCH):
            request += 1
            answers.append(loop.create_future())
            service.queue.put_nowait((request % 700, request, answers[-1]))
        await asyncio.gather(*answers)


async def main():
    tally, service = Tally(0.17), Service(Store(flag("--by-request")))
    asking = asyncio.create_task(ask(service))
    await service.serve(tally, marks())
    asking.cancel()
    tally.end()


if __name__ == "__main__":
    asyncio.run(main())
