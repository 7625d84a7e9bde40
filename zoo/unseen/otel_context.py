"""An asyncio service without torch, steps or epochs. A single task answers all requests. It attaches each request to
the OpenTelemetry context and never detaches it, so the context variable of the task keeps all requests, which use 6 %
of the process's memory. --detach detaches each request. (aws-durable-execution-sdk-python #650, opentelemetry-python
#429)"""
import asyncio
import json
import random

import numpy as np
from opentelemetry import context

from tally import TINY, Tally, flag

REQUESTS, ROWS = (12, 150) if TINY else (240, 150)
ROW = 184 + 8 + 64 + 24 + 32  # bytes of a dictionary with its slot, a name, a float and an integer


def make_request(draws):
    return json.dumps([{"name": f"item-{draws.random():.7f}", "score": draws.random(), "rank": draws.randrange(300, 9999)}
                       for _ in range(ROWS)])


class Service:
    def __init__(self, detach):
        self.detach, self.waiting = detach, asyncio.Queue(4)
        self.table = np.random.default_rng(12).random((40_000, 1000), dtype=np.float32)
        self.tally = Tally(0)

    async def ask(self):
        draws = random.Random(12)
        for number in range(1, REQUESTS + 1):
            await self.waiting.put((number, make_request(draws)))
            await asyncio.sleep(0 if TINY else 0.178)
        await self.waiting.put((0, ""))

    def score(self, rows):
        chosen = self.table[[row["rank"] for row in rows]]
        weights = np.array([row["score"] for row in rows], np.float32)
        return float((chosen.T @ weights).max())

    def held(self):
        return sum(len(rows) for key, rows in context.get_current().items() if key.startswith("request")) * ROW

    async def answer(self):
        while True:
            number, text = await self.waiting.get()
            if not number:
                return
            rows = json.loads(text)
            token = context.attach(context.set_value(f"request-{number}", rows))
            self.score(rows)
            if self.detach:
                context.detach(token)
            self.tally.step(number, self.held())

    async def serve(self):
        await asyncio.gather(self.ask(), self.answer())


def main():
    async def run():
        service = Service(flag("--detach"))
        await service.serve()
        service.tally.end()

    asyncio.run(run())


if __name__ == "__main__":
    main()
