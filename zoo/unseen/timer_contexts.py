"""A plain-Python service without steps. Each request starts a timer of one hour, which keeps the request alive although
it is answered at once. --cancel cancels the timer. Does not use numpy. (asyncpg #831, llama-agents #486)"""
import asyncio
import random
import time

from tally import TINY, Tally, flag

REQUESTS, WORDS = (12, 20) if TINY else (420, 1100)


class Request:
    def __init__(self, number):
        source = random.Random(number)
        self.number = number
        self.words = [f"{source.random():.12f}-{i}" for i in range(WORDS)]
        self.counts = {}

    def give_up(self):
        self.counts.clear()


async def answer(request, cancel):
    timer = asyncio.get_running_loop().call_later(3600, request.give_up)
    for word in request.words:
        request.counts[word[:4]] = request.counts.get(word[:4], 0) + 1
    if cancel:
        timer.cancel()
    return max(request.counts.values())


async def main():
    tally, cancel, began = Tally(0), flag("--cancel"), time.monotonic()
    for number in range(1, REQUESTS + 1):
        await answer(Request(number), cancel)
        await asyncio.sleep(0 if TINY else max(0.001, began + number * 0.095 - time.monotonic()))
        tally.step(number, 0 if cancel else number * WORDS * 80)
    tally.end()


if __name__ == "__main__":
    asyncio.run(main())
