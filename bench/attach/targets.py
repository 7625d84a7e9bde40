"""Programs that bench/attach/cycles.py attaches to. The first argument is the name of the program,
the second is the path of a file STOP. Each program runs until STOP exists and then prints one JSON
line."""

import gc
import hashlib
import json
import os
import random
import sys
import threading
import time

name, stop = sys.argv[1], sys.argv[2]
steps_wanted = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def is_over(steps):
    return steps >= steps_wanted if steps_wanted else os.path.exists(stop)


def background():
    """A thread that allocates, computes and sleeps."""
    while True:
        sum(len(bytes(random.randrange(1, 1 << 16))) for _ in range(50))
        time.sleep(0.001)


def threads(count):
    for _ in range(count):
        threading.Thread(target=background, daemon=True).start()


def ready():
    print("ready", flush=True)


def finish(**facts):
    print(json.dumps(facts), flush=True)


def torch():
    """Trains with data-loader workers. The final weights depend only on the number of steps."""
    import torch as t
    from torch.utils.data import DataLoader, TensorDataset

    t.manual_seed(1)
    t.set_num_threads(2)
    threads(2)
    data = TensorDataset(t.randn(512, 32), t.randint(0, 4, (512,)))
    model = t.nn.Sequential(t.nn.Linear(32, 64), t.nn.ReLU(), t.nn.Linear(64, 4))
    optimizer = t.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=True)
    step = 0
    while not is_over(step):
        for x, y in loader:
            loss = t.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            time.sleep(0.002)
            if step == 1:
                ready()
            if is_over(step):
                break
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    finish(steps=step, weights=digest.hexdigest())


def plain():
    """Computes with threads and a child process. The result depends only on the number of steps."""
    if os.fork() == 0:
        while os.getppid() != 1 and not os.path.exists(stop):
            sorted(random.random() for _ in range(1000))
        os._exit(0)
    threads(3)
    source, digest, step = random.Random(1), hashlib.sha256(), 0
    ready()
    while not is_over(step):
        rows = [{"a": source.random(), "b": [source.randrange(9)] * 20} for _ in range(200)]
        digest.update(repr(rows).encode())
        step += 1
    finish(steps=step, weights=digest.hexdigest())


# ---- attaches at bad moments ----


def imports():
    ready()
    while not is_over(0):
        for module in ("decimal", "email.message", "http.client", "xml.dom.minidom", "asyncio"):
            for loaded in [m for m in list(sys.modules) if m.split(".")[0] == module.split(".")[0]]:
                del sys.modules[loaded]
            __import__(module)


def forks():
    threads(1)
    ready()
    while not is_over(0):
        pid = os.fork()
        if pid == 0:
            os._exit(sum(range(1000)) % 1)
        if os.waitpid(pid, 0)[1] != 0:
            os.abort()


def execs():
    if not os.environ.get("EXECS"):
        ready()
        os.environ["EXECS"] = "1"
    until = time.time() + random.random() / 5
    while time.time() < until:
        sum(range(1000))
    if not is_over(0):
        os.execv(sys.executable, [sys.executable, *sys.argv])


def collections():
    threads(1)
    ready()
    while not is_over(0):
        for _ in range(100):
            a = []
            a.append(a)
        gc.collect()


def calls():
    ready()
    while not is_over(0):
        sum(range(3_000_000))


def exits():
    ready()
    time.sleep(random.random() / 5)


def mallocs():
    threads(8)
    ready()
    while not is_over(0):
        [bytearray(random.randrange(1 << 10, 1 << 20)) for _ in range(50)]


def sandbox():
    import ctypes
    import struct

    libc = ctypes.CDLL(None)
    space = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    libc.prctl(38, 1, 0, 0, 0)
    libc.prctl(22, 2, struct.pack("HxxxxxxP", 1, ctypes.addressof(space)), 0, 0)
    calls()


globals()[name]()
