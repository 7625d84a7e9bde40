"""Tests the marks that ebb's hooks send for torch training loops that do not use ebb themselves."""

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

# The first optimizer imports torch's compiler, which takes as long as importing torch. Loops that
# compile nothing run with a stub of the compiler; PLAIN also runs with unmodified torch.
NO_COMPILER = """
import types
compiler = types.ModuleType("torch._dynamo")
compiler.disable = lambda function, recursive=True, wrapping=True: function
compiler.graph_break = lambda *ignored: None
sys_modules = __import__("sys").modules
sys_modules["torch._dynamo"] = torch._dynamo = compiler
"""


def short(run, **values):
    return [(m["kind"], m["step"])
            for m in run.marks("begin", "step", "epoch", "eval", "end", **values)]


def expected(steps, epochs, evals=False):
    """Returns the expected marks of a run of EPOCHS epochs of STEPS steps each."""
    marks = [("begin", 0)]
    for epoch in range(epochs):
        marks += [("step", epoch * steps + n) for n in range(1, steps + 1)]
        marks.append(("epoch", (epoch + 1) * steps))
        marks += [("eval", (epoch + 1) * steps)] if evals else []
    return marks + [("end", steps * epochs)]


@pytest.fixture
def train(run_job, tmp_path):
    """Returns a function that runs a script whose beginning is HEAD and NO_COMPILER."""
    def run(text, *arguments, head=HEAD + NO_COMPILER, launcher=(), **more):
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


def test_torch_loop_with_partial_batch_and_evaluations_sends_marks(train):
    run = train(PLAIN, head=HEAD)
    assert (run.stdout, run.stderr) == ("True\n" * 3, "")
    assert short(run) == expected(3, 3, evals=True)
    assert {m["steps_per_epoch"] for m in run.marks("step", "epoch")
            if "steps_per_epoch" in m} == {3}
    assert run.marks("hello") == []  # sent only by code that can write checkpoints


@pytest.mark.parametrize("workers", [0, 1])
def test_steps_and_epochs_of_a_torchdata_loader_are_sent(train, workers):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    new = f"StatefulDataLoader(data(10), num_workers={workers}, "
    text = PLAIN.replace("DataLoader(data(10), ", new)
    run = train("from torchdata.stateful_dataloader import StatefulDataLoader\n" + text)
    assert short(run) == expected(3, 3, evals=True)
    assert {m["steps_per_epoch"] for m in run.marks("epoch")} == {3}


def test_accumulated_torch_micro_batches_are_counted_as_one_step(train):
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


def test_torch_optimizers_that_step_together_are_counted_once(train):
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


def test_torch_loop_without_a_data_loader_sends_steps(train):
    run = train("""
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss(model, (torch.randn(3, 4), torch.randn(3, 1))).backward()
    optimizer.step()
""")
    sent = [("begin", 0)] + [("step", n) for n in range(1, 6)] + [("end", 5)]
    assert short(run) == sent


def test_loaded_torch_optimizer_continues_its_step_count(train):
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


def test_importing_torch_loads_few_ebb_modules(run_job):
    run = run_job(sys.executable, "-c", OURS + "import torch\nprint(ours())",
                  env={"EBB_KEEPERS": "0", "EBB_TRUTH": "0"})
    assert run.stdout == "['ebb', 'ebb._hooks', 'ebb._patches', 'ebb._process']\n"


def test_process_forked_before_the_first_step_sends_no_marks(train):
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
def test_data_loader_workers_send_no_marks(train, context):
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
    gc.collect()  # otherwise threads of the group would outlive Python, and abort
    dist.destroy_process_group()
"""


def assert_two_ranks(run, has_end=True):
    sent = expected(3, 2) if has_end else expected(3, 2)[:-1]
    for rank in (0, 1):
        assert short(run, rank=rank) == sent
        assert len({m["pid"] for m in run.marks("step", rank=rank)}) == 1
    assert len({m["pid"] for m in run.marks("step")}) == 2
    assert run.marks("step", rank=None) == []


def test_both_ranks_under_torchrun_send_marks(train):
    run = train(RANKS + "main()\n",
                head=HEAD, launcher=["-m", "torch.distributed.run", "--standalone",
                                     "--nproc-per-node", "2"])
    assert_two_ranks(run)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_both_ranks_started_by_multiprocessing_send_marks(train, method):
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
""", method, head=HEAD)
    # a forked rank exits without running exit handlers
    assert_two_ranks(run, has_end=method != "fork")


def test_accelerate_loop_sends_steps_and_epochs(train):
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
""", head=HEAD)
    assert short(run) == expected(3, 2)
    assert {m["steps_per_epoch"] for m in run.marks() if "steps_per_epoch" in m} == {3}


def test_torch_compiler_does_not_trace_ebb_code_after_a_step(train):
    run = train("", head=HEAD + """
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from ebb import _control
callbacks, at_hooked_step = [], _control.at_hooked_step

def recorded(n):
    callbacks.append(get_eval_frame_callback())
    at_hooked_step(n)

_control.at_hooked_step = recorded
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

@torch.compile(backend="eager")
def step():
    optimizer.step()

for _ in range(3):
    optimizer.zero_grad()
    loss(model, (torch.randn(3, 4), torch.randn(3, 1))).backward()
    step()
print(callbacks)
""")
    assert run.stdout == "[None, None, None]\n"


def test_shim_does_not_change_the_code_that_torch_compile_generates(train, tmp_path):
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
