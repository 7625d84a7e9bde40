"""A service trains in its own process: jobs arrive in a queue, and a thread trains them one after another.
The service's list keeps each finished job with its data, model and optimizer; `--summary` keeps only its
score.
"""

import argparse
import json
import queue
import threading
import time
from concurrent.futures import Future

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

JOBS, STEPS, BATCH, SIDE, WIDTH, STEP_S = 8, 45, 32, 56, 400, 0.09


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def nbytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Job:
    def __init__(self, number, rate, steps):
        draw = torch.Generator().manual_seed(number)
        self.x = torch.randn(steps * BATCH, 1, SIDE, SIDE, generator=draw)
        self.y = torch.randint(0, 10, (steps * BATCH,), generator=draw)
        self.model = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(SIDE * SIDE // 4, WIDTH),
                                   nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), rate)
        self.score = None

    def train(self, after_step):
        for x, y in DataLoader(TensorDataset(self.x, self.y), batch_size=BATCH, shuffle=True):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            after_step()
        self.score = loss.item()

    def size(self):
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return nbytes([self.x, self.y, *self.model.parameters(), *moments])


class Service(threading.Thread):
    def __init__(self, summary, steps, step_s):
        super().__init__(daemon=True)
        self.summary, self.steps, self.step_s = summary, steps, step_s
        self.jobs, self.finished, self.rows = queue.Queue(), [], []
        self.began, self.kept = time.monotonic(), 0

    def submit(self, number, rate):
        answer = Future()
        self.jobs.put((number, rate, answer))
        return answer

    def run(self):
        while True:
            number, rate, answer = self.jobs.get()
            job = Job(number, rate, self.steps)
            job.train(self.after_step)
            self.finished.append({"rate": rate, "score": job.score} if self.summary else job)
            self.kept += 0 if self.summary else job.size()
            answer.set_result(job.score)
            del job

    def after_step(self):
        time.sleep(max(0, self.began + self.step_s - time.monotonic()))
        self.began = time.monotonic()
        self.rows.append((len(self.rows) + 1, self.kept, resident()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    service = Service(args.summary, 4 if args.tiny else STEPS, 0 if args.tiny else STEP_S)
    start = time.monotonic()
    service.start()
    for number in range(JOBS):
        score = service.submit(number, 10 ** -(2 + number / 4)).result()
        print(f"job {number}: {score:.3f}")
    step, live, rss = zip(*service.rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - start, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
