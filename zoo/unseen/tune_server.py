"""An HTTP server that fine-tunes in its own process and keeps each job with all its data; with --metrics it keeps only
the loss of each job."""
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tally import TINY, Tally, flag

JOBS, STEPS, BATCH = (2, 3, 16) if TINY else (10, 16, 16)
WIDTH = 600
finished = {}
tally = Tally(0.2)
count = {"steps": 0, "live": 0}


class Job:
    def __init__(self, seed):
        torch.manual_seed(seed)
        rows = STEPS * BATCH
        self.data = TensorDataset(torch.randn(rows, 4 * WIDTH), torch.randn(rows, 1))
        self.model = nn.Sequential(nn.Linear(4 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.loss = None

    def size(self):
        return sum(t.nbytes for t in self.data.tensors) + 3 * sum(p.nbytes for p in self.model.parameters())

    def train(self):
        for x, y in DataLoader(self.data, batch_size=BATCH, shuffle=True):
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.loss = loss.item()
            count["steps"] += 1
            tally.step(count["steps"], count["live"] + self.size())


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        job = Job(order["seed"])
        job.train()
        if flag("--metrics"):
            finished[order["seed"]] = job.loss
        else:
            finished[order["seed"]] = job
            count["live"] += job.size()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"loss": job.loss}).encode())

    def log_message(self, *args):
        pass


def main():
    torch.set_num_threads(1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for seed in range(JOBS):
        order = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/tune",
                                       json.dumps({"seed": seed}).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(order) as answer:
            print(answer.read().decode(), flush=True)
    server.shutdown()
    tally.end()


if __name__ == "__main__":
    main()
