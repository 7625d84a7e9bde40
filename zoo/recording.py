#!/usr/bin/env python3
"""Reads a recording through `ebb export`, and writes small tables of it for tests.

    zoo/recording.py RUN_DIR OUT/NAME      writes OUT/NAME.csv and OUT/NAME.marks.jsonl
"""

import csv
import io
import json
import subprocess
import sys

import place

TRAINING = ("begin", "step", "substep", "eval", "save", "epoch", "end")


class Unreadable(Exception):
    """ebb's error message about a recording that it cannot read."""


def export(run_dir, form):
    done = subprocess.run([place.EBB, "export", str(run_dir), f"--{form}"], check=False,
                          capture_output=True, encoding="utf-8")
    if done.returncode:
        raise Unreadable(done.stderr.strip())
    return done.stdout


class Recording:
    def __init__(self, run_dir):
        self.rows = list(csv.DictReader(io.StringIO(export(run_dir, "csv"))))
        objects = map(json.loads, export(run_dir, "jsonl").splitlines())
        self.marks = [o for o in objects if o["type"] == "mark"]
        self.main = next((m["pid"] for m in self.marks), None)

    def rss(self, pid=None):
        """Returns [(seconds, bytes)] of one process (default: the process that sends the marks)."""
        pid = str(pid or self.main)
        return [(float(r["t"]), int(r["rss_bytes"])) for r in self.rows
                if r["pid"] == pid and r["rss_bytes"]]

    def of_role(self, role):
        """Returns the pid of the process with this role that has the largest RSS at the end."""
        last = {r["pid"]: int(r["rss_bytes"]) for r in self.rows if r["role"] == role and r["rss_bytes"]}
        return max(last, key=last.get, default=None)

    def rss_by_step(self, role=None):
        """Returns {step: bytes}, where bytes is the last sample before the next step ends. Steps without such a sample
        are missing."""
        ends = [(m["t"], m["step"]) for m in self.marks if m["kind"] == "step"]
        over = next((m["t"] for m in self.marks if m["kind"] == "end"), float("inf"))
        found, i = {}, -1
        for t, rss in self.rss(role and self.of_role(role)):
            if t > over:  # the process frees memory while it exits
                break
            while i + 1 < len(ends) and ends[i + 1][0] <= t:
                i += 1
            if i >= 0:
                found[ends[i][1]] = rss
        return found


def slope(points):
    """Returns the median slope between points that are half a run apart, which is robust against jumps and warm-up."""
    points = sorted(points.items())
    half = len(points) // 2
    slopes = sorted((points[i + half][1] - points[i][1]) / (points[i + half][0] - points[i][0])
                    for i in range(len(points) - half))
    return slopes[len(slopes) // 2] if slopes else None


def write_table(path, rows, columns):
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def thin(rows, period_s=1.0):
    """Returns only the rows of one sampling time per second; at each sampling time there is a row per process."""
    kept, due, last = [], 0.0, None
    for row in rows:
        t = float(row["t"])
        if t >= due:
            last, due = t, due + period_s * (1 + int((t - due) / period_s))
        if t == last:
            kept.append(dict(row, t=f"{t:.3f}"))
    return kept


def training_marks(marks):
    """Returns the marks used by a verdict. If both the program and the hooks sent a mark, only the first is used."""
    first = {(m["kind"], m.get("step")): m for m in reversed(marks) if m["kind"] in TRAINING}
    return sorted(first.values(), key=lambda m: m["t"])


def convert(run_dir, prefix):
    recording = Recording(run_dir)
    mine = [r for r in recording.rows if r["pid"] == str(recording.main) and r["rss_bytes"]]
    write_table(f"{prefix}.csv", thin(mine), ["t", "pid", "rss_bytes", "step"])
    if any(r["role"] == "data worker" for r in recording.rows):
        tree = thin([r for r in recording.rows if r["rss_bytes"]])
        known = {(r["t"], r["pid"]) for r in tree}
        rare = [dict(r, t=f"{float(r['t']):.3f}") for r in recording.rows if r["unique_bytes"]]
        tree += [r for r in rare if r["rss_bytes"] and (r["t"], r["pid"]) not in known]
        tree.sort(key=lambda r: float(r["t"]))
        write_table(f"{prefix}.tree.csv", tree, ["t", "pid", "role", "rss_bytes", "unique_bytes"])
    with open(f"{prefix}.marks.jsonl", "w") as file:
        for mark in training_marks(recording.marks):
            drop = ("type", "pid")
            file.write(json.dumps({k: v for k, v in mark.items() if k not in drop}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        convert(sys.argv[1], sys.argv[2])
    except Unreadable as why:
        sys.exit(str(why))
