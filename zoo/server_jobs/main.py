"""A server trains in its own process, one job per request. Its table of jobs keeps the data of all jobs alive."""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

import torch
from torch import nn

BATCH = 16
WIDTH = 640
STEPS = 5  # per job


class Training:
    """One job: a model, its gradients and its momentum, 4.9 MB."""

    def __init__(self):
        self.model = nn.Linear(WIDTH, WIDTH)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self):
        inputs = torch.randn(BATCH, WIDTH)
        self.optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(self.model(inputs), inputs)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def bytes(self):
        momenta = [state["momentum_buffer"] for state in self.optimizer.state.values()]
        tensors = [*self.model.parameters(), *(p.grad for p in self.model.parameters()), *momenta]
        return sum(t.untyped_storage().nbytes() for t in tensors if t is not None)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, job):
        super().__init__(("127.0.0.1", 0), Handler)
        self.job = job
        self.jobs = {}

    def run_job(self):
        number, training = len(self.jobs), Training()
        self.jobs[number] = {"state": "running", "training": training}
        for _ in range(STEPS):
            loss = training.step()
            self.job.step(self.live_bytes())
        self.jobs[number].update(state="done", loss=loss)
        if self.job.twin:
            del self.jobs[number]["training"]
        return number

    def live_bytes(self):
        return sum(entry["training"].bytes() for entry in self.jobs.values() if "training" in entry)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.dumps({"job": self.server.run_job()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    job = common.Job(__doc__, "--fixed", "the table keeps numbers only")
    common.settle()
    server = Server(job)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/jobs", method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    job.begin(job.steps_per_epoch * BATCH, BATCH)
    while job.step_now < job.max_steps:
        opener.open(request).read()
    server.shutdown()
    job.end()


if __name__ == "__main__":
    main()
