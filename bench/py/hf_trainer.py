#!/usr/bin/env python3
"""What ebb costs a real training: a small ViT under the Hugging Face Trainer, on the CPU.

    bench/py/hf_trainer.py [--pairs N] [--block N] [--batch N] [--side N] [--threads N] [--python PATH]

One process, under a real `ebb run`, trains with all of ebb in it: the shim's hooks on optimizers and
loaders, the callback with its marks, the allocators' figures at step ends. In turns, in blocks of a
few steps, every one of these is taken out and put back, and the times of neighbouring blocks are
compared: separate processes differ by several percent on many machines, neighbours do not. In a
second part, without turns, the time spent within ebb's functions is taken directly. What the process
that watches costs beside the job comes from its own account in run.json.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BAR_PERCENT = 0.5
WARM_UP_STEPS = 20
RESAMPLES = 2000


# ---- the job ----


def make_trainer(arguments, folder, callbacks):
    import torch
    from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

    class Images(torch.utils.data.Dataset):
        """Bytes that become normalized floats, as after decoding."""

        def __init__(self, count, side):
            self.bytes = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)

        def __len__(self):
            return len(self.bytes)

        def __getitem__(self, i):
            return {"pixel_values": self.bytes[i].float().div_(127.5).sub_(1.0), "labels": i % 10}

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    set_seed(7)
    config = ViTConfig(image_size=arguments.side, patch_size=16, hidden_size=192, num_hidden_layers=6,
                       num_attention_heads=3, intermediate_size=768, num_labels=10)
    options = TrainingArguments(folder, max_steps=steps_needed(arguments), save_strategy="no",
                                per_device_train_batch_size=arguments.batch, report_to=[],
                                logging_steps=50, use_cpu=True, disable_tqdm=True)
    return Trainer(ViTForImageClassification(config), options, callbacks=callbacks,
                   train_dataset=Images(50 * arguments.batch, arguments.side))


def steps_needed(arguments):
    blocks = 2 * arguments.pairs + arguments.pairs // 2
    return WARM_UP_STEPS + blocks * arguments.block


class Switch:
    """All that ebb does in this process at every step, to be taken out and put back."""

    def __init__(self, trainer):
        from torch.optim import optimizer
        from torch.utils.data import dataloader
        from transformers import trainer as module

        # lists of their own: the handler goes through the present one while the switch is turned
        self.handler = trainer.callback_handler
        self.all = list(self.handler.callbacks)
        [self.callback] = [c for c in self.all if type(c).__module__.endswith("ebb.hf")]
        self.others = [c for c in self.all if c is not self.callback]
        self.is_on = True
        self.hooks = optimizer._global_optimizer_post_hooks
        [(self.key, self.hook)] = self.hooks.items()
        self.methods = [(dataloader.DataLoader, "__iter__"), (dataloader._BaseDataLoaderIter, "__next__"),
                        (module.Trainer, "log")]
        self.hooked = [owner.__dict__[name] for owner, name in self.methods]

    def set(self, on):
        if on == self.is_on:
            return
        self.is_on = on
        self.handler.callbacks = self.all if on else self.others
        for (owner, name), method in zip(self.methods, self.hooked):
            setattr(owner, name, method if on else method.__wrapped__)
        if on:
            self.hooks[self.key] = self.hook
        else:
            del self.hooks[self.key]


class Timed:
    """A function, and the time spent in it."""

    spent_ns = 0

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        begin = time.perf_counter_ns()
        try:
            return self.function(*args, **kwargs)
        finally:
            Timed.spent_ns += time.perf_counter_ns() - begin


class TimedCallback:
    def __init__(self, callback):
        self.callback = callback

    def __getattr__(self, name):
        found = getattr(self.callback, name)
        return Timed(found) if name.startswith("on_") else found


def time_from_now_on(switch):
    """Every way into ebb leads through Timed."""
    switch.handler.callbacks = [TimedCallback(c) if c is switch.callback else c for c in switch.all]
    switch.hooks[switch.key] = Timed(switch.hook)
    for method in switch.hooked[:2]:
        for name, cell in zip(method.__code__.co_freevars, method.__closure__):
            if name.startswith("on_"):
                cell.cell_contents = Timed(cell.cell_contents)


def clocks():
    return time.perf_counter(), time.process_time()


def make_clock(arguments):
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Takes the time from one step's begin to the next one's, and turns the switch."""

        def __init__(self):
            self.switch = self.trainer = None
            self.sides = [side for pair in range(arguments.pairs)
                          for side in ((True, False) if random.Random(pair).random() < 0.5 else (False, True))]
            self.blocks, self.direct = [], []
            self.begin = None

        def on_step_begin(self, args, state, control, **kwargs):
            done = state.global_step - WARM_UP_STEPS
            if done < 0 or done % arguments.block:
                return
            n = done // arguments.block
            if self.begin is not None:
                self.keep(n - 1, *(now - then for now, then in zip(clocks(), self.begin)))
            if self.switch is None:
                self.switch = Switch(self.trainer)
            if n < len(self.sides):
                self.switch.set(self.sides[n])
            elif n == len(self.sides):
                self.switch.set(True)
                time_from_now_on(self.switch)
            Timed.spent_ns = 0
            self.begin = clocks()

        def keep(self, n, wall, cpu):
            if n < len(self.sides):
                self.blocks.append((self.sides[n], wall / arguments.block, cpu / arguments.block))
            else:
                self.direct.append((Timed.spent_ns / 1e9 / arguments.block, wall / arguments.block))

    return Clock()


def measure(arguments):
    clock = make_clock(arguments)
    with tempfile.TemporaryDirectory() as folder:
        clock.trainer = make_trainer(arguments, folder, [clock])
        clock.trainer.train()
    with open(arguments.measure, "w") as file:
        json.dump({"blocks": clock.blocks, "direct": clock.direct}, file)


# ---- what it means ----


def trimmed_mean(values, share=0.1):
    cut = int(len(values) * share)
    return statistics.fmean(sorted(values)[cut:len(values) - cut])


def interval(values, statistic):
    """95 % by the bootstrap."""
    chance = random.Random(1)
    found = sorted(statistic(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def percent(ratios, statistic):
    low, high = interval(ratios, statistic)
    return [100 * (value - 1) for value in (statistic(ratios), low, high)]


def report(found, run, arguments):
    blocks = found["blocks"]
    step_ms = [1000 * statistics.median(b[column] for b in blocks) for column in (1, 2)]
    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, "
          f"load {os.getloadavg()[0]:.1f} at the end; {len(blocks) // 2} pairs of blocks of "
          f"{arguments.block} steps of {step_ms[0]:.0f} ms, CPU time {step_ms[1]:.0f} ms (medians)")
    for column, clock in ((1, "wall time"), (2, "CPU time of the job")):
        ratios = []
        for pair in zip(blocks[::2], blocks[1::2]):
            seconds = {block[0]: block[column] for block in pair}
            ratios.append(seconds[True] / seconds[False])
        for name, statistic in (("trimmed mean", trimmed_mean), ("median", statistics.median)):
            middle, low, high = percent(ratios, statistic)
            held = "held" if middle <= BAR_PERCENT else "MISSED"
            print(f"  with ebb, {clock + ', ' + name:34} {middle:+.2f} %  [{low:+.2f}, {high:+.2f}]  "
                  f"≤ {BAR_PERCENT} %  {held}")
    spent = [spent for spent, _ in found["direct"]]
    share = [100 * spent / step for spent, step in found["direct"]]
    print(f"  within ebb's functions            {statistics.median(share):.3f} % of a step (median), "
          f"{statistics.fmean(share):.3f} % (mean); {1e6 * statistics.median(spent):.0f} µs a step")
    print(f"  the watching process              {run['cost']['cpu_permyriad'] / 100:.2f} % of one CPU, "
          f"{run['cost']['cpu_permyriad'] / 100 / os.cpu_count():.2f} % of all")


def under_ebb(arguments):
    ebb = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    with tempfile.TemporaryDirectory() as folder:
        out, run = os.path.join(folder, "found.json"), os.path.join(folder, "run")
        options = [f"--{name}={getattr(arguments, name)}" for name in ("pairs", "block", "batch", "side", "threads")]
        subprocess.run([ebb, "run", "-q", "-d", run, "--", arguments.python, os.path.abspath(__file__),
                        f"--measure={out}", *options], env=env, check=True, cwd=folder,
                       stdout=subprocess.DEVNULL)
        return tuple(json.loads(pathlib.Path(path).read_text()) for path in (out, f"{run}/run.json"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--block", type=int, default=2, help="steps")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--side", type=int, default=224, help="of the images, in pixels")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: as many as it likes")
    parser.add_argument("--python", default=sys.executable, help="one that has torch and transformers")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments)
    else:
        report(*under_ebb(arguments), arguments)


if __name__ == "__main__":
    main()
