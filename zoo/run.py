#!/usr/bin/env python3
"""Runs programs of the zoo under ebb, and prints what ebb says beside what is true."""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ZOO = Path(__file__).resolve().parent
ROOT = ZOO.parent
sys.path.insert(0, str(ZOO))
import recording

EBB = recording.EBB
# The word of a job whose processes are judged one by one is the gravest of theirs.
GRAVITY = ["leaking", "stepping", "filling", "undecided", "plateaued", "spiking", "stable"]
MARK_COLUMNS = ("step", "epoch", "phase")
CENSUS_STEPS = 60
COLUMNS = ["program", "variant", "leak", "marks", "right", "no marks", "right",
           "counted B/step", "seen B/step", "judged B/step", "RSS MB", "first hypothesis", "right",
           "growth named", "first of ebb heap"]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs; all without any")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "zoo-runs",
                        help="folder of the recordings (default build/zoo-runs)")
    parser.add_argument("--size", choices=("small", "default", "large"), default="default")
    parser.add_argument("--seconds", type=float, help="spread the steps over this time")
    parser.add_argument("--judge-only", action="store_true", help="use the recordings in --out")
    parser.add_argument("--tables", type=Path, help="also write small tables into this folder")
    return parser.parse_args()


def interpreter():
    venv = ROOT / "build" / "zoo-venv" / "bin" / "python"
    return os.environ.get("ZOO_PYTHON") or (str(venv) if venv.exists() else sys.executable)


def variants(name):
    """[(variant, flags, truth)] of one program."""
    truth = json.loads((ZOO / name / "truth.json").read_text())
    twin = truth.pop("twin")
    return [(truth["variant"], [], truth), (twin["variant"], [twin["flag"]], twin)]


def record(name, flags, run_dir, args):
    """Runs one program; returns its exit status."""
    if (run_dir / "trace.ebb").exists():
        shutil.rmtree(run_dir)
    command = [EBB, "run", "--run-dir", str(run_dir), "--interval", "200ms", "-q", "--",
               interpreter(), str((ZOO / name / "main.py").relative_to(ROOT)), *flags,
               "--size", args.size]
    if args.seconds is not None:
        command += ["--seconds", str(args.seconds)]
    env = dict(os.environ, ZOO_COUNTS=str(counts_path(run_dir)), PYTHONDONTWRITEBYTECODE="1",
               EBB_CENSUS_EVERY=str(CENSUS_STEPS))
    return subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode


def counts_path(run_dir):
    return run_dir.resolve().with_name(run_dir.name + ".counts.jsonl")


def counted(run_dir):
    lines = counts_path(run_dir).read_text().splitlines()
    return {o["step"]: o["live_bytes"] for o in map(json.loads, lines)}


def can_judge():
    listed = subprocess.run([EBB, "help"], capture_output=True, text=True).stdout
    return re.search(r"^\s+verdict\s", listed, re.M) is not None


def judge(*arguments):
    """What `ebb verdict` says, or None with its sentence on stderr."""
    done = subprocess.run([EBB, "verdict", *map(str, arguments), "--json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        print(f"zoo: ebb verdict {arguments[0]}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def judge_without_marks(run_dir):
    table = run_dir.resolve().with_name(run_dir.name + ".no-marks.csv")
    rows = list(csv.DictReader(recording.export(run_dir, "csv").splitlines()))
    recording.write_table(table, rows, [c for c in rows[0] if c not in MARK_COLUMNS])
    return judge(table, "--column", "rss_bytes", "--group", "pid")


def verdicts(answer):
    """The verdicts about the whole job: the tree's alone where there is one."""
    if answer is None:
        return []
    if "tree" in answer:
        return [answer["tree"]]
    if "verdict" in answer:
        return [answer]
    return [v for each in answer.values() if isinstance(each, list) for v in each if "verdict" in v]


def word_of(answer):
    words = [v["verdict"] for v in verdicts(answer)]
    return min(words, key=GRAVITY.index) if words else "-"


def grade(word, right_words):
    """yes, NO, or unsure where ebb said that it cannot know."""
    if word in right_words:
        return "yes"
    return {"-": "-", "filling": "unsure", "undecided": "unsure"}.get(word, "NO")


def rate_of(answer):
    for verdict in verdicts(answer):
        if verdict.get("rate_bytes_per_step"):
            return verdict["rate_bytes_per_step"]["value"]
    return None


def ask(command, run_dir, *flags):
    """The JSON that a command prints about a run; {} where it has nothing to say."""
    done = subprocess.run([EBB, command, str(run_dir), "--json", *flags], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def first_row(run_dir):
    """The line that `ebb heap` has first: who allocates what grows, not who keeps it."""
    rows = ask("heap", run_dir, "--top", "1").get("rows", [])
    where = rows[0]["where"] if rows else {}
    if not where.get("file"):
        return where.get("function") or "-"
    return f"{Path(where['file']).name}:{where['line']} {where['function']}"


def diagnosis_cells(run_dir, truth):
    """What `ebb diagnose` has first, whether that is right, how much of the growth has a name."""
    doc = ask("diagnose", run_dir)
    ranked = doc.get("hypotheses") or [{"key": "-"}]
    first = ranked[0]["key"]
    share = (doc.get("ledger") or {}).get("named_growth_share")
    return [first, "yes" if first in truth["hypotheses"] else "NO",
            "-" if share is None else f"{share:.0%}", first_row(run_dir)]


def number(value):
    return "-" if value is None else f"{value:,.0f}"


def row_of(name, variant, truth, run_dir, judging):
    """One line of the table, and whether ebb was right with marks."""
    seen = recording.Recording(run_dir)
    by_step = seen.rss_by_step()
    with_marks = judge(run_dir) if judging else None
    without = judge_without_marks(run_dir) if judging else None
    word, bare = word_of(with_marks), word_of(without)
    right = grade(word, truth["words"])
    bare_right = grade(bare, truth.get("words_without_marks", truth["words"]))
    steps = sorted(by_step)
    row = [name, variant, "yes" if truth["leak"] else "no", word, right, bare, bare_right,
           number(recording.slope(counted(run_dir))), number(recording.slope(by_step)),
           number(rate_of(with_marks)),
           f"{by_step[steps[0]] >> 20}..{by_step[steps[-1]] >> 20}" if steps else "-",
           *diagnosis_cells(run_dir, truth)]
    return row, right == "yes" or not judging


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    args = options()
    known = sorted(path.parent.name for path in ZOO.glob("*/truth.json"))
    unknown = [name for name in args.programs if name not in known]
    if unknown:
        sys.exit(f"zoo: no program called {unknown[0]}; there are {', '.join(known)}")
    args.out.mkdir(parents=True, exist_ok=True)
    judging = can_judge()
    if not judging:
        print("zoo: this ebb has no verdict command: recording only", file=sys.stderr)
    rows, all_right = [COLUMNS], True
    for name in args.programs or known:
        for variant, flags, truth in variants(name):
            run_dir = args.out / f"{name}-{variant}"
            if not args.judge_only:
                print(f"zoo: {name} {variant}", file=sys.stderr)
                status = record(name, flags, run_dir, args)
                if status:
                    log = run_dir / "log.txt"
                    sys.exit(f"zoo: {name} {variant} ended with status {status}; see {log}")
            if args.tables:
                args.tables.mkdir(parents=True, exist_ok=True)
                recording.convert(run_dir, args.tables / run_dir.name)
            row, right = row_of(name, variant, truth, run_dir, judging)
            rows.append(row)
            all_right = all_right and right
    print_table(rows)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
