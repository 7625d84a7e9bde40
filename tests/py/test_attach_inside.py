"""Tests ebb._attach in training loops that are already running."""

import importlib.util
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest

from jobs import PACKAGE, PATIENCE_S, binary, environment

LIBRARY = pathlib.Path(binary()).resolve().parent / "libebb-heap.so"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="torch is not installed")

# This code is prepended to the jobs. at_step(n) attaches at step 50 and detaches 100 steps later.
# check() asserts what must hold for every job.
HEAD = """
import sys
sys.path[:0] = [PACKAGE, TESTS]
from attached import Ebb, Hooked, state, state_after
ebb = Ebb(LIBRARY)
before = before_hooks = None

def at_step(n):
    global before, before_hooks
    if n == 50:
        before, before_hooks = state(), Hooked()
        ebb.start()
        assert ebb.wait_for("attached") == {
            "KIND": "attached", "PID": str(__import__("os").getpid()), "HEAP": "1"}, ebb.marks
    if n == 149:
        changes = Hooked().changes(before_hooks)
        assert "allocators" in changes and any("/" in c for c in changes), changes
    if n == 150:
        ebb.stop()
        found = ebb.wait_for("detached")
        assert found["KIND"] == "detached" and "REASON" not in found, found
        now = state_after(before)
        assert now == before, {k: (before[k], now[k]) for k in before if before[k] != now[k]}
        changes = Hooked().changes(before_hooks)
        assert changes == [], changes

def check(by=None):
    # a step that follows another too soon is sent later
    steps = [int(m["STEP"]) for m in ebb.of_kind("step")]
    assert steps == sorted(set(steps)) and 50 <= steps[0] <= 53 and 148 <= steps[-1] <= 150, steps
    assert all(m.get("BY") == by for m in ebb.of_kind("step")), ebb.of_kind("step")[0]
    assert ebb.python_state() == (1, 1)
    print("good")
"""


def run(folder, text):
    head = HEAD.replace("PACKAGE", repr(str(PACKAGE))).replace("LIBRARY", repr(str(LIBRARY)))
    head = head.replace("TESTS", repr(str(pathlib.Path(__file__).parent)))
    path = folder / "job.py"
    path.write_text(head + textwrap.dedent(text))
    result = subprocess.run([sys.executable, path], cwd=folder, env=environment(), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=PATIENCE_S)
    text = result.stdout + result.stderr
    assert result.returncode == 0 and result.stdout.endswith("good\n"), text


TORCH = """
    import threading
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(400, 8), torch.randn(400, 1))
    is_over = False
    # by default, each system call of the training loop waits 5 ms for the GIL, which work() holds
    sys.setswitchinterval(1e-4)

    def work():
        while not is_over:
            [bytes(500) for _ in range(1000)]

    def train(at_step):
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        n = 0
        for epoch in range(2):
            for x, y in DataLoader(data, batch_size=4, num_workers=1):
                loss = ((model(x) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                n += 1
                at_step(n)
        return model
"""


@needs_torch
def test_attached_torch_loop_with_workers_and_threads_sends_steps(tmp_path):
    run(tmp_path, TORCH + """
    threading.Thread(target=work, daemon=True).start()
    first = train(at_step)
    is_over = True
    check("hook")
    second = train(lambda n: None)
    for a, b in zip(first.parameters(), second.parameters()):
        assert torch.equal(a, b)
    epochs = ebb.of_kind("epoch")
    assert [m["STEPS_PER_EPOCH"] for m in epochs] == ["100"], epochs
    """)


@needs_torch
def test_attaching_25_times_leaves_a_torch_loop_unchanged(tmp_path):
    run(tmp_path, TORCH + """
    def cycle(n):
        if n == 2:
            cycle.before = state()
        if n > 2 and n % 4 == 0 and n <= 100:
            ebb.start()
        elif n > 2 and n % 4 == 2 and n <= 102:
            ebb.stop()

    threading.Thread(target=work, daemon=True).start()
    first = train(cycle)
    assert ebb.wait_for("detached", 25)["KIND"] == "detached"
    is_over = True
    now = state_after(cycle.before)
    assert now == cycle.before, (now, cycle.before)
    assert not [m for m in ebb.marks if "REASON" in m], ebb.marks
    for a, b in zip(first.parameters(), train(lambda n: None).parameters()):
        assert torch.equal(a, b)
    print("good")
    """)


HF = """
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 320

        def __getitem__(self, i):
            return {"x": torch.full((4,), i / 320), "labels": torch.ones(1)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            y = self.linear(x)
            return {"loss": ((y - labels) ** 2).mean(), "logits": y}

    class At(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            at_step(state.global_step)

    arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4,
                                  save_strategy="no", report_to=[], use_cpu=True,
                                  disable_tqdm=True)
    trainer = Trainer(Model(), arguments, train_dataset=Data(), callbacks=[At()])
    callbacks = list(trainer.callback_handler.callbacks)
    trainer.train()
    check()
    assert trainer.callback_handler.callbacks == callbacks
    begin, = ebb.of_kind("begin")
    assert (begin["STEPS_PER_EPOCH"], begin["MAX_STEPS"]) == ("80", "160"), begin
    assert [m["EPOCH"] for m in ebb.of_kind("epoch")] == ["1.0"]
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None,
                    reason="transformers is not installed")
def test_attach_adds_callback_to_running_hf_trainer(tmp_path):
    run(tmp_path, HF)


LIGHTNING = """
    import logging
    import torch
    import lightning.pytorch as L
    from torch.utils.data import DataLoader, TensorDataset

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            at_step(self.trainer.global_step)
            return (self.linear(batch[0]) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = L.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    callbacks = list(trainer.callbacks)
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(320, 4)), batch_size=4))
    check()
    assert trainer.callbacks == callbacks
    begin, = ebb.of_kind("begin")
    assert (begin["STEPS_PER_EPOCH"], begin["MAX_STEPS"]) == ("80", "160"), begin
"""


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None,
                    reason="lightning is not installed")
def test_attach_adds_callback_to_running_lightning_trainer(tmp_path):
    run(tmp_path, LIGHTNING)


# A first trainer trains before, during and after the detach. Just before the detach, another
# trainer is created, which trains after the first one.
BETWEEN = """
    def at_step(n):
        if n == 2:
            other.append(make())
            ebb.stop()
            assert "REASON" not in ebb.wait_for("detached"), ebb.marks

    other = []
    ebb.start()
    assert ebb.wait_for("attached")["HEAP"] == "1"
    first = make()
    train(first)
    at_step = lambda n: None
    train(*other)
    assert len(ebb.of_kind("begin")) == 1, ebb.marks
    found = [c for trainer in (first, *other) for c in callbacks(trainer)]
    assert not [c for c in found if "ebb" in type(c).__module__], found
    print("good")
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None,
                    reason="transformers is not installed")
def test_detach_unhooks_hf_trainers_created_after_the_attach(tmp_path):
    run(tmp_path, HF[:HF.index("    trainer = Trainer(")] + """
    def make():
        return Trainer(Model(), arguments, train_dataset=Data(), callbacks=[At()])

    def train(trainer):
        trainer.train()

    def callbacks(trainer):
        return trainer.callback_handler.callbacks
""" + BETWEEN)


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None,
                    reason="lightning is not installed")
def test_detach_unhooks_lightning_trainers_created_after_the_attach(tmp_path):
    run(tmp_path, LIGHTNING[:LIGHTNING.index("    trainer = L.Trainer(")] + """
    def make():
        return L.Trainer(accelerator="cpu", max_steps=6, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)

    def train(trainer):
        trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(320, 4)), batch_size=4))

    def callbacks(trainer):
        return trainer.callbacks
""" + BETWEEN)


def test_detach_removes_the_hooks_from_every_framework(tmp_path):
    run(tmp_path, """
    import importlib
    frameworks = ("torch.optim", "torch.utils.data", "transformers.trainer", "lightning.pytorch",
                  "keras", "optax", "xgboost", "lightgbm", "sklearn.base", "tqdm.std")
    for name in frameworks:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    before = Hooked()
    ebb.start()
    ebb.wait_for("attached")
    from ebb import _hooks
    imported = [name for name in _hooks.HOOKS if name in sys.modules]
    while sorted(_hooks._done) != sorted(imported):
        pass
    changes = Hooked().changes(before)
    assert len([c for c in changes if "/" not in c]) > len(imported), (imported, changes)
    ebb.stop()
    ebb.wait_for("detached")
    changes = Hooked().changes(before)
    assert changes == [], changes
    print("good")
    """)


def test_module_loaded_after_the_detach_is_not_hooked(tmp_path):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    run(tmp_path, """
    import importlib.util
    from ebb import _attach, _hooks
    ebb.start()
    ebb.wait_for("attached")
    spec = importlib.util.find_spec("tqdm.std")
    ebb.stop()
    ebb.wait_for("detached")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not hasattr(module.tqdm.update, "__wrapped__") and _hooks._done == {}
    print("good")
    """)


def test_module_imported_while_ebb_is_attached_is_hooked(tmp_path):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    run(tmp_path, """
    import sys
    from ebb import _attach
    ebb.start()
    ebb.wait_for("attached")
    import tqdm.std
    assert tqdm.std.tqdm.update.__name__ == "update" and tqdm.std.tqdm.update.__wrapped__
    ebb.stop()
    ebb.wait_for("detached")
    assert not hasattr(tqdm.std.tqdm.update, "__wrapped__")
    print("good")
    """)


def test_attach_is_refused_while_another_ebb_is_attached(tmp_path):
    run(tmp_path, """
    other = Ebb(ebb.library)
    ebb.start()
    assert ebb.wait_for("attached")["HEAP"] == "1"
    other.start()
    found = other.wait_for("attached")
    assert found["KIND"] == "refused" and ebb.path in found["REASON"], found
    ebb.start()  # again
    ebb.wait_for("attached", 2)
    ebb.stop()
    ebb.wait_for("detached")
    print("good")
    """)


def test_attach_installs_hooks_even_if_profiler_library_is_missing(tmp_path):
    run(tmp_path, """
    ebb.library = "/nowhere/libebb-heap.so"
    ebb.start()
    found = ebb.wait_for("attached")
    assert found["HEAP"] == "0" and "/nowhere" in found["REASON"], found
    import ebb as package
    package.step(7)
    assert ebb.wait_for("step")["STEP"] == "7"
    ebb.stop()
    assert ebb.wait_for("detached")["KIND"] == "detached"
    print("good")
    """.replace("import ebb as package\n    package.step(7)",
                "from ebb import _marks\n    _marks.step(7)"))


def test_tracemalloc_started_by_the_job_still_works_after_a_detach(tmp_path):
    run(tmp_path, """
    import tracemalloc
    ebb.start()
    ebb.wait_for("attached")
    tracemalloc.start()
    kept = [{} for _ in range(1000)]
    ebb.stop()
    assert "the hook on Python's allocator stays" in ebb.wait_for("detached")["REASON"]
    assert tracemalloc.get_traced_memory()[0] > 10000
    tracemalloc.stop()
    kept = [{} for _ in range(1000)]
    ebb.start()
    found = ebb.wait_for("attached", 2)
    assert found["HEAP"] == "1" and "REASON" not in found, found
    ebb.stop()
    assert "REASON" not in ebb.wait_for("detached", 2)
    print("good")
    """)


OPTED_IN = """
import sys, threading
sys.path.insert(0, {package!r})
import ebb
print("ready", flush=True)
sys.stdin.readline()
kept = [bytes(1000) for _ in range(100_000)]
print(sorted(t.name for t in threading.enumerate()), flush=True)
sys.stdin.readline()
"""


def test_variable_ebb_attach_opens_a_socket_for_attach_requests(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
    from attached import Ebb

    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        job = subprocess.Popen([sys.executable, "-c", OPTED_IN.format(package=str(PACKAGE))],
                               env=environment({"EBB_ATTACH": "1", "XDG_RUNTIME_DIR": runtime}),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert job.stdout.readline() == "ready\n"
        folder = pathlib.Path(runtime) / "ebb"
        assert folder.stat().st_mode & 0o777 == 0o700
        path, ebb = str(folder / f"attach.{job.pid}"), Ebb(str(LIBRARY))

        def request(text):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(PATIENCE_S)
                s.connect(path)
                s.send(text.encode())
                return s.recv(1000)
        start = f"REQUEST=start\nSOCKET={ebb.path}\nRUN_DIR={ebb.folder}\nLIBRARY={ebb.library}"
        assert b"REASON=unknown request" in request("nonsense")
        assert b"REASON=ebb is not attached" in request("REQUEST=stop")
        assert request(start) == b"KIND=attach\nSTATUS=done\n"
        found = ebb.wait_for("attached")
        assert (found["PID"], found["HEAP"]) == (str(job.pid), "1"), found
        assert request("REQUEST=stop") == b"KIND=attach\nSTATUS=done\n"
        assert ebb.wait_for("detached")["KIND"] == "detached"
        assert list(ebb.tables) == [job.pid]
        job.stdin.write("\n")
        job.stdin.flush()
        assert job.stdout.readline() == "['MainThread', 'ebb-optin']\n"
        job.communicate("\n", timeout=PATIENCE_S)
        assert job.returncode == 0 and list(folder.iterdir()) == []


def test_socket_folder_accessible_to_other_users_is_not_used(tmp_path):
    (tmp_path / "ebb").mkdir(mode=0o777)
    (tmp_path / "ebb").chmod(0o777)
    code = f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); import ebb"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S,
                   env=environment({"EBB_ATTACH": "1", "XDG_RUNTIME_DIR": str(tmp_path)}))
    assert list((tmp_path / "ebb").iterdir()) == []
