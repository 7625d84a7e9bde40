"""Shared by programs of the unseen set: options, pace, and the programs' own count of live bytes. Must be imported
before torch, because this module sets the environment so that torch has one thread, no GPU and no network."""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def rss_kib():
    """Returns (RssAnon, RssFile + RssShmem) in KiB."""
    anon = other = 0
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                anon = int(line.split()[1])
            elif line.startswith(("RssFile:", "RssShmem:")):
                other += int(line.split()[1])
    return anon, other


class Run:
    def __init__(self, name, flag, help, total_steps, seconds=32.0):
        p = argparse.ArgumentParser(description=name)
        p.add_argument(flag, dest="twin", action="store_true", help=help)
        p.add_argument("--seconds", type=float, default=seconds,
                       help="training time to spread the steps over")
        p.add_argument("--scale", type=float, default=1.0,
                       help="sizes of what is kept, cached or leaked")
        p.add_argument("--no-marks", action="store_true")
        a = p.parse_args()
        self.name, self.twin, self.scale = name, a.twin, a.scale
        self.marks = not (a.no_marks or os.environ.get("HELD_NO_MARKS") == "1")
        self.dt = a.seconds / total_steps
        self.total = total_steps
        self.next = None
        self.steps = 0
        self.counts = []
        self.first_rss = None

    def n(self, size, least=1):
        return max(least, int(round(size * self.scale)))

    def pace(self, live=None, weight=1.0):
        """Ends a step and sleeps until the next step is due. `live` is the program's own count."""
        now = time.monotonic()
        if self.next is None:
            self.next = now
            self.t0 = now
            self.first_rss = rss_kib()
        self.steps += 1
        if live is not None:
            every = max(1, self.total // 24)
            if self.steps == 1 or self.steps % every == 0:
                self.counts.append([self.steps, int(live), rss_kib()[0] >> 10])
        self.next += self.dt * weight
        if self.next > now:
            time.sleep(self.next - now)
        elif now - self.next > 5 * self.dt:
            self.next = now

    def report(self, live, **more):
        anon, other = rss_kib()
        if self.first_rss is None:
            self.first_rss = (anon, other)
            self.t0 = time.monotonic()
        print("HELD " + json.dumps({
            "program": self.name, "twin": self.twin, "steps": self.steps, "live_bytes": int(live),
            "rss_anon_first_mib": self.first_rss[0] >> 10, "rss_anon_last_mib": anon >> 10,
            "rss_file_last_mib": other >> 10, "seconds": round(time.monotonic() - self.t0, 1),
            "counts": self.counts, **more}), flush=True)
        sys.stdout.flush()
