"""A scoring service without steps answers its requests in threads. Each request opens a session with a random ID, which
is never closed. --expire keeps only the newest 40 sessions. Uses only numpy. (litestar #5085, cherrypy #1082)"""
import queue
import threading
import time
import uuid
from collections import OrderedDict

import numpy as np

from tally import TINY, Tally, flag

REQUESTS, WIDTH, KEPT = (20, 1000, 5) if TINY else (400, 24_000, 40)


class Sessions:
    def __init__(self, expire):
        self.expire, self.open, self.lock = expire, OrderedDict(), threading.Lock()

    def begin(self, features):
        with self.lock:
            self.open[uuid.uuid4().hex] = {"at": time.time(), "features": features, "scores": []}
            while self.expire and len(self.open) > KEPT:
                self.open.popitem(last=False)
            return next(reversed(self.open.values()))

    def held(self):
        return len(self.open) * WIDTH * 8


def work(requests, sessions, model):
    while (seed := requests.get()) is not None:
        session = sessions.begin(np.random.default_rng(seed).random(WIDTH))
        for part in session["features"].reshape(-1, 200):
            session["scores"].append(float(np.tanh(part @ model).sum()))
        requests.task_done()


def main():
    requests, sessions, tally = queue.Queue(8), Sessions(flag("--expire")), Tally(0.1)
    model = np.random.default_rng(0).random((200, 400)) - 0.5
    threads = [threading.Thread(target=work, args=(requests, sessions, model)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(1, REQUESTS + 1):
        requests.put(n)
        tally.step(n, sessions.held())
    for _ in threads:
        requests.put(None)
    for thread in threads:
        thread.join()
    tally.end()


if __name__ == "__main__":
    main()
