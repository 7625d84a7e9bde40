#!/usr/bin/env python3
"""Judges recorded programs at their end and at many moments before, and compares the verdicts with the labels.

    research/moments.py EBB RUNS [--quick]

RUNS is a folder of recordings named PROGRAM-VARIANT-marks as zoo/unseen/run.py makes them. Each is judged twice: with
its marks, every quarter of an epoch; and with --no-marks, every ten seconds. --quick judges only the ends.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEAKS = ("leaking", "stepping")
OPEN = ("filling", "undecided")
SOON_EPOCHS, SOON_S = 1.25, 60


def judge(ebb, run, *options):
    done = subprocess.run([ebb, "verdict", "--json", run, *options], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        return None
    doc = json.loads(done.stdout)
    return doc.get("tree") or doc


def length_s(run):
    return json.loads((run / "run.json").read_text()).get("duration_s") or 0


def moments_of(run, truth, mode):
    """Returns [(epochs or seconds, options for ebb verdict)] for the moments before the end."""
    if mode == "nomarks":
        return [(t, ("--no-marks", "--until", str(t))) for t in range(10, int(length_s(run)), 10)]
    per_epoch, epochs = truth["steps_per_epoch"], truth["epochs"]
    steps = {max(1, round(per_epoch * quarter / 4)) for quarter in range(1, 4 * epochs)}
    return [(step / per_epoch, ("--until-step", str(step))) for step in sorted(steps)]


def judge_run(ebb, run, truth, mode, quick):
    end = judge(ebb, run, *(("--no-marks",) if mode == "nomarks" else ()))
    way = [] if quick else [(at, judge(ebb, run, *options)) for at, options in moments_of(run, truth, mode)]
    return {"run": run.name, "mode": mode, "leak": truth["leak"], "set": truth["set"], "end": end,
            "per_step": truth["bytes_per_step"] or 0,
            "per_min": (truth["bytes_per_step"] or 0) * truth["epochs"] * truth["steps_per_epoch"] / length_s(run) * 60,
            "words": truth["words_no_marks" if mode == "nomarks" else "words"],
            "late": "leak_from_step" in truth, "way": [(at, word) for at, word in way if word]}


def share(part, whole):
    return f"{part} of {whole}" + (f" = {part / whole:.1%}" if whole else "")


def is_below_limit(f):
    """Whether the program leaks more slowly than the rate that ebb says it would have detected."""
    limit = f["end"].get("detectable") or {}
    return f["per_step"] < (limit.get("bytes_per_step") or 0) or (
        not limit.get("bytes_per_step") and f["per_min"] < (limit.get("bytes_per_min") or 0))


def print_ends(found):
    leaks = [f for f in found if f["leak"]]
    sound = [f for f in found if not f["leak"]]
    right = [f for f in found if f["end"]["leak"] == f["leak"]]
    print(f"  right at the end      {share(len(right), len(found))} (the word itself: "
          f"{sum(f['end']['verdict'] in f['words'] for f in found)})")
    print(f"  false leaks           {share(sum(f['end']['leak'] is True for f in sound), len(sound))}")
    missed = [f for f in leaks if f["end"]["leak"] is False]
    seen = [f for f in leaks if not is_below_limit(f)]
    print(f"  leaks judged healthy  {share(len(missed), len(leaks))}; above the stated limit of detection "
          f"{share(sum(f in seen for f in missed), len(seen))}")
    for f in found:
        if f["end"]["leak"] != f["leak"]:
            print(f"      {f['run']}: {f['end']['verdict']} ({f['end']['confidence']:.2f}, "
                  f"probability {f['end'].get('probability')}), {'leaks' if f['leak'] else 'healthy'}")


def first_known(f):
    """Returns the first moment at which the run was judged leaking, or None."""
    return next((at for at, one in f["way"] if one["verdict"] in LEAKS), None)


def print_way(found, mode):
    leaks = [f for f in found if f["leak"] and not f["late"]]
    sound = [f for f in found if not f["leak"]]
    called = [f["run"] for f in sound if first_known(f) is not None]
    soon = SOON_EPOCHS if mode == "marks" else SOON_S
    known = [first_known(f) for f in leaks]
    print(f"  ever judged leaking   {share(len(called), len(sound))} healthy runs {' '.join(called)}")
    print(f"  leaks known by {soon:g} {'epochs' if mode == 'marks' else 's'}   "
          f"{share(sum(k is not None and k <= soon for k in known), len(leaks))}, before the end "
          f"{share(sum(k is not None for k in known), len(leaks))}")


def print_calibration(found):
    bins = collections.OrderedDict(((0.5, 0.6), (0.6, 0.8), (0.8, 0.95), (0.95, 1.01)))
    for low, high in bins.items():
        inside = [f for f in found if f["end"]["leak"] is not None and low <= f["end"]["confidence"] < high]
        if inside:
            mean = sum(f["end"]["confidence"] for f in inside) / len(inside)
            print(f"  confidence {low:.2f} to {min(high, 1):.2f} (mean {mean:.2f}): "
                  f"{share(sum(f['end']['leak'] == f['leak'] for f in inside), len(inside))} right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ebb")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--truths", type=Path, default=ROOT / "zoo" / "unseen" / "truths.json")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    truths = json.loads(args.truths.read_text())
    tasks = []
    for run in sorted(args.runs.iterdir()):
        key, _, recorded = run.name.rpartition("-")
        if key in truths and (run / "run.json").exists() and json.loads((run / "run.json").read_text()).get("end"):
            # a run recorded without marks is judged only without them
            tasks += [(run, truths[key], mode) for mode in ("marks", "nomarks") if recorded == "marks" or mode == recorded]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda task: judge_run(args.ebb, *task, args.quick), tasks))
    found = [f for f in found if f["end"]]
    for mode in ("marks", "nomarks"):
        chosen = [f for f in found if f["mode"] == mode]
        if not chosen:
            continue
        print(f"{mode}: {len(chosen)} runs")
        print_ends(chosen)
        if not args.quick:
            print_way(chosen, mode)
        print_calibration(chosen)
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
