"""An asyncio service without steps or torch: a middleware keeps a histogram of durations per path. Each path contains a
customer number, so there are ever more histograms. With --route it keeps a histogram per route. The service also has a
table of 200 MB. (otari #264, shenyu #6671)"""
import asyncio
import random
import time

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tally import TINY, Tally, flag

TICKS, EACH, ROWS = (8, 3, 2000) if TINY else (210, 25, 400_000)
BOUNDS = [0.001 * 2 ** i for i in range(14)]
SERIES = 1280  # bytes of one histogram with its key, measured in isolation


class Histogram:
    def __init__(self, labels):
        self.labels, self.total, self.count = labels, 0.0, 0
        self.buckets = [0.0 for _ in BOUNDS]

    def observe(self, seconds):
        self.total += seconds
        self.count += 1
        for i, bound in enumerate(BOUNDS):
            self.buckets[i] += float(seconds <= bound)


class Registry:
    def __init__(self):
        self.series = {}

    def histogram(self, **labels):
        key = tuple(sorted(labels.items()))
        if key not in self.series:
            self.series[key] = Histogram(labels)
        return self.series[key]


class Timing:
    """Measures how long each request takes."""

    def __init__(self, app, registry, by_route):
        self.app, self.registry, self.by_route = app, registry, by_route

    async def __call__(self, scope, receive, send):
        began = time.perf_counter()
        await self.app(scope, receive, send)
        path = scope["route"].path if self.by_route and "route" in scope else scope["path"]
        name = "/customers" if self.by_route else path
        self.registry.histogram(method=scope["method"], path=name).observe(time.perf_counter() - began)


def service(table):
    async def score(request):
        row = table[request.path_params["number"] % ROWS]
        return JSONResponse({"score": float(np.tanh(row).mean()), "best": int(row.argmax())})

    return Starlette(routes=[Route("/customers/{number:int}/score", score)])


async def serve(table, registry, tally):
    draws = random.Random(13)
    app = Timing(service(table), registry, flag("--route"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://scores") as client:
        for n in range(1, TICKS + 1):
            paths = [f"/customers/{draws.randrange(10 ** 9)}/score" for _ in range(EACH)]
            answers = await asyncio.gather(*(client.get(path) for path in paths))
            assert all(answer.status_code == 200 for answer in answers)
            tally.step(n, len(registry.series) * SERIES)


def main():
    table = np.random.default_rng(13).standard_normal((ROWS, 128), dtype=np.float32)
    tally = Tally(0.2)
    asyncio.run(serve(table, Registry(), tally))
    tally.end()


if __name__ == "__main__":
    main()
