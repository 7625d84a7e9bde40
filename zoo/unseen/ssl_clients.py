"""A scoring service without torch, steps or epochs: every second answer is sent to a webhook through a new HTTP client,
whose SSL context with all certificates takes about 0.85 MB in OpenSSL. The clients stay in a table, for retries that
never occur. --close closes and removes them. (httpx #978, home-assistant #90191, airflow #57334)"""
import httpx
import numpy as np

from tally import TINY, Tally, flag

REQUESTS = 12 if TINY else 212
MODEL, CLIENT = (4000, 8000), 852_000  # bytes of one client, measured in isolation


class Webhooks:
    def __init__(self, close):
        self.close, self.waiting, self.sent = close, {}, 0

    def deliver(self, number, scores):
        client = httpx.Client(base_url="https://hooks.invalid", timeout=5)
        request = client.build_request("POST", f"/{number}", json={"scores": scores})
        self.sent += len(request.content)
        self.waiting[number] = client
        if self.close:
            self.waiting.pop(number).close()


def main():
    rng = np.random.default_rng(10)
    model, hooks, tally = rng.random(MODEL, dtype=np.float32), Webhooks(flag("--close")), Tally(0.2)
    for number in range(1, REQUESTS + 1):
        query = rng.random((6, MODEL[0]), dtype=np.float32)
        scores = query @ model
        best = np.argpartition(scores, -10, 1)[:, -10:]
        if number % 2:
            hooks.deliver(number, [[round(float(score), 4) for score in row] for row in scores[:, best[0]]])
        tally.step(number, len(hooks.waiting) * CLIENT)
    tally.end()


if __name__ == "__main__":
    main()
