"""A ranking service without steps or epochs. Each request starts a task that waits for the user's feedback and keeps
the features of the request. Feedback rarely arrives, so most tasks never end. With --timeout a task ends after four
seconds. Does not use torch."""
import asyncio
import time

import numpy as np

from tally import TINY, Tally, flag

REQUESTS = 12 if TINY else 420
ROWS, WIDTH, WAIT = 40, 300, 4.0  # a request has 40 x 300 features of 8 bytes: 96 kB
open_features = {}


class Ranker:
    def __init__(self, timeout):
        self.timeout = timeout
        self.weights = np.random.default_rng(6).random(WIDTH)
        self.clicks, self.tasks = {}, set()

    async def learn_later(self, request, features):
        click = self.clicks[request] = asyncio.Event()
        try:
            await (asyncio.wait_for(click.wait(), WAIT) if self.timeout else click.wait())
            self.weights += 1e-4 * features[0]
        except asyncio.TimeoutError:
            pass
        finally:
            del self.clicks[request], open_features[request]

    async def rank(self, request, seed):
        features = np.random.default_rng(seed).random((ROWS, WIDTH))
        open_features[request] = features.nbytes
        order = np.argsort(features @ self.weights)
        task = asyncio.create_task(self.learn_later(request, features))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return order

    def click(self, request):
        if request in self.clicks:
            self.clicks[request].set()


async def main():
    ranker, tally = Ranker(flag("--timeout")), Tally(0)
    began = time.monotonic()
    for request in range(1, REQUESTS + 1):
        await ranker.rank(request, request * 7)
        if request % 20 == 0:
            ranker.click(request - 5)
        await asyncio.sleep(0 if TINY else max(0.001, began + request * 0.095 - time.monotonic()))
        tally.step(request, sum(open_features.values()))
    tally.end()
    for task in list(ranker.tasks):
        task.cancel()
    await asyncio.gather(*ranker.tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
