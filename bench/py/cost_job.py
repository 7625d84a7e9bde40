"""The job of cost.py: trains under `ebb run` and switches parts of ebb off and on between blocks of steps.

An arm is a combination of parts of ebb that are on. Each round runs every requested arm, in random order. If there are
two arms, each runs twice per round, in the order A-B-B-A, which cancels drift within the round. After each switch there
are a few untimed steps. Costs are differences between blocks of the same round, so slow drift of the machine cancels
out.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import re
import signal
import sys
import time

# Each arm has four switches: marks, hooks, profiler, supervisor running. The profiler is on in most arms, because its
# sampling rate has a budget per second of wall time: while it is off it saves budget and then samples faster than in
# normal use.
ARMS = {
    "nothing": (0, 0, 0, 1),
    "profiler": (0, 0, 1, 1),
    "marks": (1, 0, 1, 1),
    "hooks": (0, 1, 1, 1),
    "all": (1, 1, 1, 1),
    "unwatched": (0, 0, 0, 0),
}
# In a round with all arms, these two arms run twice, because several other arms are compared with them.
TWICE = ("nothing", "profiler")
BLOCK_S = 0.1
SHORT_BLOCK_S = 0.05  # Used for short steps, because drift of the machine affects short blocks less.
SHORT_STEP_S = 0.009
SETTLE_S = 0.01  # Untimed seconds after each switch, rounded down to whole steps.
WARM_UP_STEPS = 60
WORKERS = 4
HEADER_SAMPLES = 12  # Index of the sample counter in struct heap_header, in 8-byte words; two more counters follow.


class Profiler:
    """Turns the hooks of libebb-heap.so off and on with bench/heap/ab.c, which redirects every GOT slot that points to
    a hook."""

    def __init__(self, library):
        self.library = ctypes.PyDLL(library)  # The library's functions require the GIL, which PyDLL holds.
        self.slots = self.library.ab_find()
        self.has_small = bool(self.library.ab_find_small())
        self.header = None

    def set(self, on):
        self.library.ab_set(on, on)

    def samples(self):
        """Returns the number of samples so far, and the nanoseconds spent on them."""
        if self.header is None:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
                found = re.search(r"^([0-9a-f]+)-.*memfd:ebb-heap", lines.read(), re.MULTILINE)
            if not found:
                return 0, 0
            self.header = (ctypes.c_uint64 * 16).from_address(int(found[1], 16))
        return self.header[HEADER_SAMPLES], self.header[HEADER_SAMPLES + 2]


def ebb_module(name):
    """Returns a module of the ebb package in use. The package has a private name if the user has a module named
    `ebb`."""
    return sys.modules.get(f"ebb.{name}") or sys.modules.get(f"_ebb.{name}")


class Due:
    """Turns the time-based samples of the Python package off and on. While they are off, their clocks stop; otherwise
    every block with these samples would begin with overdue samples and cost more than in normal use."""

    def __init__(self):
        self.off_since = None

    def set(self, on):
        now = time.monotonic()
        if not on and self.off_since is None:
            self.off_since = now
        elif on and self.off_since is not None:
            away, self.off_since = now - self.off_since, None
            wire, truth, keepers = (ebb_module(name) for name in ("_wire", "_truth", "_containers"))
            wire.wire()._step_due += away
            if truth and keepers:
                truth._next += away
                keepers._next_s += away


class Hooks:
    """Turns off and on the hooks that the shim installs in optimizers, data loaders and Trainer.log."""

    def __init__(self):
        optimizer = importlib.import_module("torch.optim.optimizer")
        loaders = importlib.import_module("torch.utils.data.dataloader")
        trainer = sys.modules.get("transformers.trainer")
        self.post = optimizer._global_optimizer_post_hooks
        self.own_post = dict(self.post)
        owners = [(loaders.DataLoader, "__iter__"), (loaders._BaseDataLoaderIter, "__next__")]
        owners += [(trainer.Trainer, "log")] if trainer else []
        self.methods = [(o, name, o.__dict__[name]) for o, name in owners if hasattr(o.__dict__[name], "__wrapped__")]
        if not self.own_post or len(self.methods) < 2:
            raise SystemExit("cost: the shim's hooks are not set; is this under ebb run?")

    def set(self, on):
        for key, hook in self.own_post.items():
            if on:
                self.post[key] = hook
            else:
                self.post.pop(key, None)
        for owner, name, method in self.methods:
            setattr(owner, name, method if on else method.__wrapped__)


class MarksByHand:
    """Turns the loop's own calls of ebb.step off and on. While they are off, the hooks report the steps, as in a
    program without marks. The loop and the hooks count steps separately, each without gaps, because a gap or a restart
    would cost additional marks in every block."""

    def __init__(self):
        self.is_on, self.step = True, 0
        self.rows = {True: None, False: None}  # The pending mark of each step source.
        self.counted = None  # The tracker's step count at its last report.
        import ebb

        self.send = ebb.step

    def __call__(self):
        if self.is_on:
            self.step += 1
            self.send(self.step)

    def set(self, on):
        if bool(on) == self.is_on:
            return
        wire, control = ebb_module("_wire").wire(), ebb_module("_control")
        tracker = ebb_module("_hooks")._tracker
        self.rows[self.is_on] = (wire._step, wire._sent, wire._row_end)
        if on:
            self.counted = (tracker.step, tracker._has_begun, tracker._sent)
        elif self.counted:
            tracker.step, tracker._has_begun, tracker._sent = self.counted
        self.is_on = bool(on)
        if self.rows[self.is_on]:
            wire._step, wire._sent, wire._row_end = self.rows[self.is_on]
        if not on:
            wire.is_sent_by_job = False
            control.release()


class MarksOfCallback:
    """Turns EbbCallback, which the shim adds to a trainer, off and on. OWNER.callbacks is the list that contains it."""

    def __init__(self, owner, steps_done):
        self.owner, self.all, self.steps_done = owner, list(owner.callbacks), steps_done
        self.others = [c for c in self.all if "ebb" not in type(c).__module__.split(".")[0]]
        if len(self.all) == len(self.others):
            raise SystemExit("cost: the trainer has no callback of ebb's")

    def set(self, on):
        callbacks = self.all if on else self.others
        wire = ebb_module("_wire").wire()
        # The step numbers continue, because a gap would cost additional marks.
        if on and self.owner.callbacks is not callbacks and wire._step:
            wire._step = wire._sent = (self.steps_done(), *wire._step[1:4], time.monotonic())
        self.owner.callbacks = callbacks


class Parts:
    def __init__(self, library, marks):
        self.profiler, self.hooks, self.marks, self.due = Profiler(library), Hooks(), marks, Due()
        self.supervisor = os.getppid()
        with open(f"/proc/{self.supervisor}/comm") as file:
            self.is_watched_by_parent = file.read().strip() == "ebb-supervisor"
        self.is_stopped = False

    def stop(self, stopped):
        if stopped != self.is_stopped and self.is_watched_by_parent:
            os.kill(self.supervisor, signal.SIGSTOP if stopped else signal.SIGCONT)
            self.is_stopped = stopped

    def set(self, arm):
        marks, hooks, profiler, watched = ARMS[arm]
        self.stop(not watched)
        self.due.set(bool(marks or hooks))
        self.marks.set(marks)
        self.hooks.set(hooks)
        self.profiler.set(profiler)


class Work:
    """Lengthens a step with matrix products on the training device."""

    def __init__(self, torch, device):
        side = 4096 if device.type == "cuda" else 128
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.matrix = torch.randn(side, side, device=device, dtype=kind) / side
        self.out = torch.empty_like(self.matrix)
        self.mm, self.count = torch.mm, 0

    def __call__(self):
        for _ in range(self.count):
            self.mm(self.matrix, self.matrix, out=self.out)


class Clock:
    """Called at the start of every step. `script` is a generator that runs the whole measurement; each yield returns to
    the training loop for one step."""

    def __init__(self, arguments, work, make_parts):
        self.arguments, self.work, self.make_parts = arguments, work, make_parts
        self.found, self.is_over = {"targets": []}, False
        self.script = self.run()

    def __call__(self):
        if next(self.script, "over") == "over":
            self.is_over = True

    @staticmethod
    def steps(count):
        for _ in range(count):
            yield

    def timed(self, count):
        begin = time.perf_counter()
        yield from self.steps(count)
        return (time.perf_counter() - begin) / count

    def calibrate(self, target_s):
        """Adds work until a step takes TARGET_S. A step may take longer than that even without added work."""
        self.work.count = 0
        base = yield from self.timed(max(4, min(50, int(0.3 / target_s))))
        self.work.count = 10
        ten = yield from self.timed(10)
        for _ in range(2):
            each = max(1e-7, (ten - base) / self.work.count)
            self.work.count = max(0, round((target_s - base) / each))
            if self.work.count == 0:
                return
            ten = yield from self.timed(max(4, min(100, int(0.3 / target_s))))

    def block(self, parts, arm, count, settle):
        parts.set(arm)
        yield from self.steps(settle)
        samples, hook_ns = parts.profiler.samples()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        yield from self.steps(count)
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        now, now_ns = parts.profiler.samples()
        return {"arm": arm, "wall_us": wall / 1e3 / count, "cpu_us": cpu / 1e3 / count,
                "samples": now - samples, "hook_us": (now_ns - hook_ns) / 1e3 / count, "wall_s": wall / 1e9}

    def order(self, chance):
        """Returns the arms of one round, in the order in which they run."""
        arms = self.arguments.arms
        if len(arms) == 2:
            a, b = chance.sample(arms, 2)
            return [a, b, b, a]
        blocks = [*arms, *(arm for arm in TWICE if arm in arms)]
        return chance.sample(blocks, len(blocks))

    def run(self):
        yield from self.steps(WARM_UP_STEPS)
        parts, chance = self.make_parts(), random.Random(1)
        self.found.update(slots=parts.profiler.slots, has_small=parts.profiler.has_small,
                          is_watched_by_parent=parts.is_watched_by_parent)
        with contextlib.ExitStack() as at_end:
            at_end.callback(parts.stop, False)
            for target_ms in self.arguments.ms:
                parts.set("all")
                yield from self.calibrate(target_ms / 1e3)
                step_s = yield from self.timed(max(2, int(0.3 / (target_ms / 1e3))))
                gc.collect()
                gc.freeze()
                block_s = SHORT_BLOCK_S if step_s < SHORT_STEP_S else BLOCK_S
                count, settle = max(1, round(block_s / step_s)), int(SETTLE_S / step_s)
                rounds, end = [], time.monotonic() + self.arguments.seconds
                while time.monotonic() < end:
                    row = []
                    for arm in self.order(chance):
                        row.append((yield from self.block(parts, arm, count, settle)))
                    rounds.append(row)
                self.found["targets"].append({"target_ms": target_ms, "steps": count, "rounds": rounds})
            parts.set("all")


# ---- training loops ----


def device_of(torch):
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_data(torch):
    class Examples(torch.utils.data.Dataset):
        """Bytes converted to floats, as after decoding an image."""

        def __len__(self):
            return 1 << 30

        def __getitem__(self, i):
            raw = torch.empty(3, 16, 16, dtype=torch.uint8).fill_(i % 251)
            return {"x": raw.float().div_(127.5).sub_(1.0).flatten(), "labels": i % 10}

    return Examples()


class InOrder:
    """A sampler for DataLoader that counts to a billion without a list of the numbers."""

    def __iter__(self):
        return iter(range(1 << 30))

    def __len__(self):
        return 1 << 30


def make_model(torch, work):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(768, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

        def forward(self, x, labels=None):
            work()
            logits = self.layers(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    return Model()


class Log:
    """Reads the loss, which synchronizes with the device, and adds it to a record of the step, as typical loops do."""

    def __init__(self):
        self.records = [None] * 100

    def __call__(self, n, loss):
        record = {"step": n, "loss": loss.item(), "text": f"step {n}", "window": [0.0] * 64}
        self.records[n % 100] = record


def train_plain(arguments, torch):
    device, log, n = device_of(torch), Log(), 0
    work, marks = Work(torch, device), MarksByHand()
    model = make_model(torch, work).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clock = Clock(arguments, work, lambda: Parts(arguments.library, marks))
    loader = torch.utils.data.DataLoader(make_data(torch), batch_size=8, sampler=InOrder(), num_workers=WORKERS,
                                         pin_memory=device.type == "cuda")
    for batch in loader:
        clock()
        if clock.is_over:
            break
        loss = model(batch["x"].to(device, non_blocking=True), batch["labels"].to(device, non_blocking=True))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        marks()
        n += 1
        log(n, loss)
    return clock.found


def train_hf(arguments, torch):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    device, log = device_of(torch), Log()
    work = Work(torch, device)

    class Own(Trainer):
        def _get_train_sampler(self, *_args, **_kwargs):
            return InOrder()

        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            log(self.state.global_step, loss)
            return loss

    class Begin(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            clock()
            control.should_training_stop = clock.is_over

    options = TrainingArguments(arguments.folder, max_steps=1 << 40, save_strategy="no", report_to=[], disable_tqdm=True,
                                logging_strategy="steps", logging_steps=50, per_device_train_batch_size=8,
                                dataloader_num_workers=WORKERS, use_cpu=device.type == "cpu", log_level="error")
    trainer = Own(make_model(torch, work), options, train_dataset=make_data(torch), callbacks=[Begin()])
    clock = Clock(arguments, work, lambda: Parts(arguments.library, MarksOfCallback(trainer.callback_handler,
                                                                                   lambda: trainer.state.global_step)))
    trainer.train()
    return clock.found


def train_lightning(arguments, torch):
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl

    device, log = device_of(torch), Log()
    work = Work(torch, device)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model(torch, work)

        def training_step(self, batch, n):
            loss = self.model(batch["x"], batch["labels"])["loss"]
            log(n, loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    class Begin(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, n):
            clock()
            trainer.should_stop = clock.is_over

    loader = torch.utils.data.DataLoader(make_data(torch), batch_size=8, sampler=InOrder(), num_workers=WORKERS,
                                         pin_memory=device.type == "cuda")
    trainer = pl.Trainer(accelerator="gpu" if device.type == "cuda" else "cpu", devices=1, min_epochs=0, max_epochs=1,
                         callbacks=[Begin()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, default_root_dir=arguments.folder, use_distributed_sampler=False)
    clock = Clock(arguments, work, lambda: Parts(arguments.library, MarksOfCallback(trainer, lambda: trainer.global_step)))
    trainer.fit(Module(), loader)
    return clock.found


LOOPS = {"plain": train_plain, "hf": train_hf, "lightning": train_lightning}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--ms", type=lambda text: [float(ms) for ms in text.split(",")], required=True)
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS))
    parser.add_argument("--seconds", type=float, required=True, help="for each length of a step")
    parser.add_argument("--library", required=True, help="bench/heap/libab.so of the build folder")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--report", required=True)
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    torch.manual_seed(7)
    found = LOOPS[arguments.loop](arguments, torch)
    found["device"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    found["torch"] = torch.__version__
    with open(arguments.report, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
