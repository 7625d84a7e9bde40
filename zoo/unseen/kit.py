"""Shared by programs of the unseen set: threads, options, pace, and the final report. This module neither allocates
significant memory nor leaks."""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_DISABLED"] = "true"

import argparse, json, sys, time, warnings

warnings.filterwarnings("ignore")
T0 = time.monotonic()


def cannot(why):
    print("cannot run here:", why, flush=True)
    sys.exit(77)


def options(variant_flag):
    """variant_flag is the option that selects the second variant, such as --fixed or --leak."""
    p = argparse.ArgumentParser()
    p.add_argument(variant_flag, dest="twin", action="store_true")
    p.add_argument("--no-marks", action="store_true",
                   default=os.environ.get("HELD_NO_MARKS") == "1")
    p.add_argument("--tiny", action="store_true",
                   help="a quick look that it runs: few steps, no pace")
    return p.parse_args()


def torch_cpu():
    try:
        import torch
    except ImportError:
        cannot("no torch")
    torch.set_num_threads(1)
    torch.manual_seed(20)
    return torch


class Pace:
    """Paces a loop to `seconds` per iteration."""

    def __init__(self, seconds, tiny=False):
        self.seconds = 0 if tiny else seconds
        self.next = None

    def tick(self):
        now = time.monotonic()
        if self.next is None or now > self.next + 3 * self.seconds:
            self.next = now
        self.next += self.seconds
        if self.next > now:
            time.sleep(self.next - now)


def rss():
    out = {}
    for line in open("/proc/self/status"):
        if line.startswith(("VmRSS", "RssAnon", "RssFile", "VmHWM")):
            k, v = line.split(":")
            out[k] = int(v.split()[0]) * 1024
    return out


class Ledger:
    """Collects pairs of (step, live bytes), as counted by the program itself; the last line of the output
    summarizes them."""

    def __init__(self):
        self.rows = []
        self.first = None

    def note(self, step, live):
        r = rss()
        if not self.rows:
            self.first = time.monotonic()
        self.rows.append((step, int(live), r["VmRSS"]))
        print(f"  step {step:4d}  live {live / 1e6:8.2f} MB  rss {r['VmRSS'] / 1e6:8.1f} MB",
              flush=True)

    def close(self, epochs, steps_per_epoch, **more):
        a, b = self.rows[0], self.rows[-1]
        n = max(1, b[0] - a[0])
        print("HELD " + json.dumps({
            "epochs": epochs, "steps_per_epoch": steps_per_epoch, "steps": b[0], "live_first": a[1],
            "live_last": b[1], "live_per_step": round((b[1] - a[1]) / n), "rss_first": a[2],
            "rss_last": b[2],
            "rss_per_step": round((b[2] - a[2]) / n), "peak": rss()["VmHWM"],
            "train_s": round(time.monotonic() - self.first, 1),
            "all_s": round(time.monotonic() - T0, 1),
            "rows": self.rows, **more}), flush=True)


def hf_args(outdir, **kw):
    """Returns TrainingArguments without options that this version of transformers does not know."""
    import dataclasses
    from transformers import TrainingArguments
    base = dict(output_dir=outdir, use_cpu=True, report_to=[], disable_tqdm=True,
                dataloader_pin_memory=False,
                logging_strategy="no", save_strategy="no", seed=7, learning_rate=1e-3)
    base.update(kw)
    known = {f.name for f in dataclasses.fields(TrainingArguments)}
    return TrainingArguments(**{k: v for k, v in base.items() if k in known})
