"""Marks of real training loops in real torch, with no word about ebb in them."""

import subprocess
import sys

import pytest

from jobs import PATIENCE_S, environment

pytest.importorskip("torch", reason="torch is not installed")

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def data(n):
    return TensorDataset(torch.randn(n, 4), torch.randn(n, 1))

def loss(model, batch):
    x, y = batch
    return ((model(x) - y) ** 2).mean()

model = torch.nn.Linear(4, 1)
"""


def short(run, **values):
    return [(m["kind"], m["step"])
            for m in run.marks("begin", "step", "epoch", "eval", "end", **values)]


def expected(steps, epochs, evals=False):
    """What a run of EPOCHS passes of STEPS steps each tells."""
    told = [("begin", 0)]
    for epoch in range(epochs):
        told += [("step", epoch * steps + n) for n in range(1, steps + 1)]
        told.append(("epoch", (epoch + 1) * steps))
        told += [("eval", (epoch + 1) * steps)] if evals else []
    return told + [("end", steps * epochs)]


@pytest.fixture
def train(run_job, tmp_path):
    """Runs a script that begins with HEAD."""
    def run(text, *arguments, head=HEAD, launcher=(), **more):
        script = tmp_path / "train.py"
        script.write_text(head + text)
        result = run_job(sys.executable, *launcher, script, *arguments, **more)
        assert result.status == 0, result.stderr
        return result
    return run


PLAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader, test = DataLoader(data(10), batch_size=4, shuffle=True), DataLoader(data(7), batch_size=2)
for epoch in range(3):
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(sum(float(loss(model, batch)) for batch in test) > 0)
"""


def test_a_plain_loop_with_a_last_partial_batch_and_evaluations(train):
    run = train(PLAIN)
    assert (run.stdout, run.stderr) == ("True\n" * 3, "")
    assert short(run) == expected(3, 3, evals=True)
    assert {m["steps_per_epoch"] for m in run.marks("step", "epoch")
            if "steps_per_epoch" in m} == {3}
    assert run.marks("hello") == []  # nobody in it could make a checkpoint


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_torchdata(train, workers):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    new = f"StatefulDataLoader(data(10), num_workers={workers}, "
    text = PLAIN.replace("DataLoader(data(10), ", new)
    run = train("from torchdata.stateful_dataloader import StatefulDataLoader\n" + text)
    assert short(run) == expected(3, 3, evals=True)
    assert {m["steps_per_epoch"] for m in run.marks("epoch")} == {3}


def test_accumulated_gradients(train):
    run = train("""
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for epoch in range(2):
    for i, batch in enumerate(loader := DataLoader(data(21), batch_size=2), 1):
        loss(model, batch).backward()
        if i % 4 == 0 or i == len(loader):
            optimizer.step()
            optimizer.zero_grad()
""")
    assert short(run) == expected(3, 2)
    assert {m["steps_per_epoch"] for m in run.marks() if "steps_per_epoch" in m} == {3}


def test_two_optimizers(train):
    run = train("""
other = torch.nn.Linear(4, 1)
first = torch.optim.Adam(model.parameters(), lr=0.01)
second = torch.optim.Adam(other.parameters(), lr=0.01)
for epoch in range(2):
    for batch in DataLoader(data(12), batch_size=3):
        first.zero_grad()
        loss(model, batch).backward()
        first.step()
        second.zero_grad()
        loss(other, batch).backward()
        second.step()
""")
    assert short(run) == expected(4, 2)


def test_a_loop_without_a_loader(train):
    run = train("""
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss(model, (torch.randn(3, 4), torch.randn(3, 1))).backward()
    optimizer.step()
""")
    told = [("begin", 0)] + [("step", n) for n in range(1, 6)] + [("end", 5)]
    assert short(run) == told


def test_a_loaded_optimizer_goes_on_counting(train):
    run = train("""
def some(optimizer, n):
    for _ in range(n):
        loss(model, (torch.randn(3, 4), torch.randn(3, 1))).backward()
        optimizer.step()

import os, sys
if not os.path.exists("state.pt"):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for state in range(7):
        some(optimizer, 1)
    torch.save(optimizer.state_dict(), "state.pt")
    os.execv(sys.executable, [sys.executable, *sys.argv])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer.load_state_dict(torch.load("state.pt"))
some(optimizer, 2)
""")
    assert [m["step"] for m in run.marks("step")] == list(range(1, 10))


OURS = """
import sys
def ours():
    return sorted(n for n in sys.modules if n.split(".")[0] in ("ebb", "_ebb"))
"""


def test_importing_torch_loads_nothing_that_only_a_training_needs(run_job):
    run = run_job(sys.executable, "-c", OURS + "import torch\nprint(ours())")
    assert run.stdout == "['ebb', 'ebb._hooks', 'ebb._process']\n"


def test_process_forked_before_the_first_step_is_silent(train):
    run = train("""
import os
child = os.fork()
if child:
    os.waitpid(child, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3 if child else 5):
    loss(model, data(4)[:4]).backward()
    optimizer.step()
if child == 0:
    os._exit(0)
""")
    assert short(run) == [("begin", 0), ("step", 1), ("step", 2), ("step", 3), ("end", 3)]


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader_are_silent(train, context):
    run = train("""
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):  # a worker that trains a little, and iterates a loader of its own
        small = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(small.parameters(), lr=0.01)
        for (x,) in DataLoader(TensorDataset(torch.randn(2, 1)), batch_size=1):
            small(x).sum().backward()
            optimizer.step()
        return torch.randn(4), torch.randn(1)

if __name__ == "__main__":
    import os, sys
    print(os.getpid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Data(), batch_size=4, num_workers=2, persistent_workers=True,
                        multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()
""", context)
    assert {m["pid"] for m in run.marks()} == {int(run.stdout)}
    assert short(run) == expected(3, 2)


RANKS = """
import gc
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    set = data(22)
    sampler = torch.utils.data.DistributedSampler(set)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in DataLoader(set, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            loss(ddp, batch).backward()
            optimizer.step()
    del ddp, optimizer
    gc.collect()  # what holds the group keeps its threads, which abort if they outlive Python
    dist.destroy_process_group()
"""


def assert_two_ranks(run, has_end=True):
    told = expected(3, 2) if has_end else expected(3, 2)[:-1]
    for rank in (0, 1):
        assert short(run, rank=rank) == told
        assert len({m["pid"] for m in run.marks("step", rank=rank)}) == 1
    assert len({m["pid"] for m in run.marks("step")}) == 2
    assert run.marks("step", rank=None) == []


def test_two_ranks_of_torchrun(train):
    run = train(RANKS + "main()\n",
                launcher=["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
    assert_two_ranks(run)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_two_ranks_that_the_script_starts(train, method):
    run = train(RANKS + """
def rank(n, folder):
    import os
    init = dist.init_process_group
    dist.init_process_group = lambda backend: init(
        backend, init_method=f"file://{folder}/meet", rank=n, world_size=2)
    main()

if __name__ == "__main__":
    import os, sys
    import torch.multiprocessing as mp
    mp.start_processes(rank, args=(os.getcwd(),), nprocs=2, start_method=sys.argv[1])
""", method)
    assert_two_ranks(run, has_end=method != "fork")  # a forked one leaves without ceremony


def test_a_loop_with_accelerate(train):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    run = train("""
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(data(20), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss(model, batch))
            optimizer.step()
            optimizer.zero_grad()
""")
    assert short(run) == expected(3, 2)
    assert {m["steps_per_epoch"] for m in run.marks() if "steps_per_epoch" in m} == {3}


def test_a_compiled_step_is_compiled_as_without(train, tmp_path):
    text = HEAD + """
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
optimizer, counter = torch.optim.Adam(model.parameters(), lr=0.01), CompileCounter()

@torch.compile(backend=counter)
def step():
    optimizer.step()

for _ in range(3):
    optimizer.zero_grad()
    loss(model, (torch.randn(3, 4), torch.randn(3, 1))).backward()
    step()
print(counter.frame_count, counter.op_count, sum(counters["graph_break"].values()))
"""
    run = train("", head=text)
    plain = subprocess.run([sys.executable, tmp_path / "train.py"], env=environment(), text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert run.stdout == plain.stdout
    assert len(run.stderr.splitlines()) == len(plain.stderr.splitlines())
    assert short(run) == [("begin", 0), ("step", 1), ("step", 2), ("step", 3), ("end", 3)]
