#!/usr/bin/env python3
"""Fits the weights of the verdict's model, and prints its accuracy on sets of programs that the fit has not seen.

    research/fit.py features TOOL RUNS > features.jsonl   one line per process and job, at the end and during the run
    research/fit.py report features.jsonl                 cross-validation that leaves out whole sets
    research/fit.py weights features.jsonl > src/verdict/weights.inc

TOOL is build/bench/features, RUNS a folder of recordings named PROGRAM-VARIANT-MODE as zoo/unseen/run.py makes
them. Labels are in zoo/unseen/truths.json. A recording with marks is used twice, with and without its marks. The
probability of a run is the highest of its processes and of the job as a whole. Fitting therefore alternates between
choosing the row with the highest probability of each run and fitting the weights to these rows. Ends of runs, and moments
every ten seconds during them, have separate weights.
"""

import collections
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TRUTHS = ROOT / "zoo" / "unseen" / "truths.json"
HEADER = ROOT / "src" / "verdict" / "model.h"
PENALTY = 0.01  # L2, on the standardised weights
TURNS = 4
STEPS = 4000
EVERY_S = 10
LEAK_FROM, NO_LEAK_UNTIL, RUNNING_LEAK_FROM = 0.75, 0.3, 0.92  # as in src/verdict/settle.c
SHAPE_LEAK_FROM = 0.5  # as in src/judge/judge_model.c: of a running job that leaks by shape
FIRST_EPOCH = 1.15  # as in src/verdict/settle.c: the model is not used before
LEAK_WORDS = ("leaking", "stepping")
SOON_S = 60
MATERIAL = 0.025  # fraction of the baseline: the stated limit of detection is at least this growth
OF_SITES = ("sites_", "kept_", "work_", "settled_")  # features of call sites


def names_and_signs():
    """[(feature, whether its weight may be negative)] from model.h."""
    found = re.findall(r'X\(\w+, "(\w+)", \'(.)\'', HEADER.read_text())
    return [(name, sign == "?") for name, sign in found]


def seconds_of(run):
    try:
        doc = json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        return None
    return doc.get("duration_s") if doc.get("end") else None


def write_features(tool, folder):
    def one(task):
        run, mode = task
        flags = ["--no-marks"] if mode == "nomarks" else []
        moments = [str(t) for t in range(2 * EVERY_S, int(seconds_of(run)), EVERY_S)]
        done = subprocess.run([tool, *flags, run, *moments], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"fit: {run.name}: {done.stderr.strip()}", file=sys.stderr)
        return f"{run.name.rpartition('-')[0]}-{mode}", done.stdout.splitlines()

    tasks = []
    for run in sorted(Path(folder).iterdir()):
        if seconds_of(run):
            recorded = run.name.rpartition("-")[2]
            tasks += [(run, mode) for mode in ("marks", "nomarks") if recorded == "marks" or mode == recorded]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, lines in pool.map(one, tasks):
            for line in lines:
                print(json.dumps({"run": name, **json.loads(line)}))


def read_runs(path):
    """Returns (ends, moments): [{run, set, mode, leak, at, rows, earlier}], one row of features per process and job.
    EARLIER has the same rows with call sites as they were EVERY_S before; not a number: these were not known yet."""
    truths = json.loads(TRUTHS.read_text())
    names = [name for name, _ in names_and_signs()]
    is_of_sites = np.array([name.startswith(OF_SITES) for name in names])
    groups, features, has_sites = collections.OrderedDict(), {}, {}
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        has_sites[row["run"], row["at"], row["pid"]] = row["has_sites"]
        features[row["run"], row["at"], row["pid"]] = np.array([row["features"][n] for n in names])
        if row["stands"] and not (0 < row["epochs"] < FIRST_EPOCH):
            groups.setdefault((row["run"], row["at"]), []).append(row)
    ends, moments = [], []
    for (name, at), rows in groups.items():
        key, _, mode = name.rpartition("-")
        if key not in truths:
            continue
        now = [features[name, at, row["pid"]] for row in rows]
        unknown = np.full(len(names), np.nan)
        before = [features[name, at - EVERY_S, row["pid"]] if has_sites.get((name, at - EVERY_S, row["pid"])) else
                  unknown if row["has_sites"] else here for row, here in zip(rows, now)]
        found = {"run": name, "mode": mode, "set": truths[key]["set"], "leak": truths[key]["leak"], "at": at,
                 "late": "leak_from_step" in truths[key], "word": rows[0]["job"], "rows": np.array(now),
                 "earlier": np.where(is_of_sites, before, now)}
        (moments if at else ends).append(found)
    return ends, moments


def fit(runs, scale):
    """Returns the weights of the standardised features, then the bias, by projected gradient descent with momentum."""
    may_be_negative = np.array([free for _, free in names_and_signs()] + [True])
    truth = np.array([run["leak"] for run in runs], float)
    counts = collections.Counter(run["run"] for run in runs)
    share = np.array([1 / counts[run["run"]] for run in runs])  # each run counts once
    share /= share.sum()
    chosen = [0] * len(runs)
    weights = np.zeros(len(may_be_negative))
    for _ in range(TURNS):
        x = np.array([run["rows"][at] / scale for run, at in zip(runs, chosen)])
        x = np.hstack([x, np.ones((len(runs), 1))])
        speed = 4 / (np.linalg.norm(x * np.sqrt(share)[:, None], 2) ** 2 + 8 * PENALTY)
        last = weights.copy()
        for step in range(STEPS):
            ahead = weights + step / (step + 3) * (weights - last)
            slope = x.T @ (share * (1 / (1 + np.exp(-x @ ahead)) - truth))
            slope[:-1] += 2 * PENALTY * ahead[:-1]
            last, weights = weights, ahead - speed * slope
            weights = np.where(may_be_negative, weights, np.maximum(weights, 0))
        chosen = [int(np.argmax(run["rows"] / scale @ weights[:-1])) for run in runs]
    return weights


def probability(run, scale, weights):
    """Returns the highest probability of the run's processes. During the run, that of a process is the lower one with
    its call sites now and as they were a moment before."""
    odds = run["rows"] / scale @ weights[:-1]
    if run["at"]:
        odds = np.minimum(odds, np.nan_to_num(run["earlier"] / scale @ weights[:-1], nan=-np.inf))
    return 1 / (1 + np.exp(-(np.max(odds) + weights[-1])))


def scale_of(runs):
    return np.concatenate([run["rows"] for run in runs]).std(0) + 1e-9


def left_out(runs):
    """Returns the probability of each run under weights fitted without its set."""
    found = np.zeros(len(runs))
    for name in sorted({run["set"] for run in runs}):
        rest = [run for run in runs if run["set"] != name]
        scale = scale_of(rest)
        weights = fit(rest, scale)
        for i, run in enumerate(runs):
            if run["set"] == name:
                found[i] = probability(run, scale, weights)
    return found


def growth(run):
    """Returns the growth of resident memory over its baseline, of the process or job that grew most."""
    at = [name for name, _ in names_and_signs()].index("grown")
    share = min(0.999, (101 ** run["rows"][:, at].max() - 1) / 100)  # of the memory at the end
    return share / (1 - share)


def grew_visibly(runs):
    """Returns the runs whose growth exceeds the stated limit of detection. Without marks, growth includes start-up;
    such a run is counted by the growth that its marks show."""
    found = {run["run"]: growth(run) for run in runs}
    return {name for name in found if found.get(name.replace("-nomarks", "-marks"), found[name]) > MATERIAL}


def report_ends(runs):
    p = left_out(runs)
    visible = grew_visibly(runs)
    for mode in sorted({run["mode"] for run in runs}):
        leaks = [i for i, run in enumerate(runs) if run["mode"] == mode and run["leak"]]
        sound = [i for i, run in enumerate(runs) if run["mode"] == mode and not run["leak"]]
        right = sum(p[i] >= LEAK_FROM for i in leaks) + sum(p[i] <= NO_LEAK_UNTIL for i in sound)
        words = sum((runs[i]["word"] in LEAK_WORDS) == runs[i]["leak"] and
                    runs[i]["word"] not in ("filling", "undecided") for i in leaks + sound)
        print(f"{mode}: {right} of {len(leaks + sound)} right, {sum(p[i] >= LEAK_FROM for i in sound)} of {len(sound)} "
              f"healthy runs judged leaking, {sum(p[i] <= NO_LEAK_UNTIL for i in leaks)} of {len(leaks)} leaks judged healthy; "
              f"{words} right by the verdicts of ebb")
        seen = [i for i in leaks if runs[i]["run"] in visible]
        healthy = [i for i in seen if p[i] <= NO_LEAK_UNTIL]
        by_word = [i for i in seen if runs[i]["word"] not in (*LEAK_WORDS, "filling", "undecided")]
        print(f"    above the limit of detection: {len(healthy)} of {len(seen)} leaks judged healthy, {len(by_word)} by the "
              f"verdicts of ebb: {' '.join(runs[i]['run'] for i in sorted({*healthy, *by_word}))}")
        for i in sorted(leaks + sound, key=lambda i: abs(p[i] - runs[i]["leak"]), reverse=True)[:12]:
            print(f"    {runs[i]['run']}: {p[i]:.2f}, {'leaks' if runs[i]['leak'] else 'healthy'}, {runs[i]['word']}")
    sure = np.maximum(p, 1 - p)
    is_right = (p >= 0.5) == np.array([run["leak"] for run in runs])
    for low, high in ((0.5, 0.6), (0.6, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (sure >= low) & (sure < high)
        if inside.any():
            print(f"confidence {low:.2f} to {min(high, 1):.2f}: {inside.sum()} runs, {is_right[inside].mean():.1%} right")


def print_called(mode, rule, runs, is_called):
    called = {}
    for i, run in enumerate(runs):
        if run["mode"] == mode and is_called[i]:
            called[run["run"]] = min(called.get(run["run"], run["at"]), run["at"])
    all_sound = {run["run"] for run in runs if run["mode"] == mode and not run["leak"]}
    all_leaks = {run["run"] for run in runs if run["mode"] == mode and run["leak"] and not run["late"]}
    wrong = sorted(all_sound & set(called))
    print(f"{mode}, {rule}: {len(wrong)} of {len(all_sound)} healthy runs judged leaking at some time; of "
          f"{len(all_leaks)} leaks {sum(called.get(r, 1e9) <= SOON_S for r in all_leaks)} by {SOON_S} s, "
          f"{len(all_leaks & set(called))} before the end; {' '.join(wrong)}")


def report_moments(runs):
    p = left_out(runs)
    known = {(run["run"], run["at"]) for run in runs}
    is_confirmed = np.array([(run["run"], run["at"] - EVERY_S) in known for run in runs])
    leaks_by_word = np.array([run["word"] in LEAK_WORDS for run in runs])
    for mode in sorted({run["mode"] for run in runs}):
        for level in (0.8, 0.85, 0.9, RUNNING_LEAK_FROM, 0.95, 0.98):
            print_called(mode, f"threshold {level}", runs, p >= level)
        is_sure = p >= RUNNING_LEAK_FROM
        is_called = np.where(is_confirmed, is_sure | (leaks_by_word & (p >= SHAPE_LEAK_FROM)), is_sure & leaks_by_word)
        print_called(mode, "with the shape, confirmed", runs, is_called)


def write_weights(ends, moments):
    print(f"/* Written by research/fit.py from {len(ends)} ends of runs and {len(moments)} moments; do not edit. */")
    found = {}
    for name, runs in (("running", moments), ("over", ends)):
        scale = scale_of(runs)
        weights = fit(runs, scale)
        found[name] = (weights[-1], weights[:-1] / scale)
    print("static const struct {")
    print("    double bias, weight[MODEL_COUNT];")
    print("} model_weights[2] = {")
    for name in ("running", "over"):
        bias, weights = found[name]
        print(f"    /* {name} */")
        print(f"    {{{bias:.5g},")
        print("     {")
        for (feature, _), weight in zip(names_and_signs(), weights):
            print(f"         [MODEL_{feature.upper()}] = {weight:.5g},")
        print("     }},")
    print("};")


def main():
    match sys.argv[1:]:
        case ["features", tool, folder]:
            write_features(tool, folder)
        case ["report", path]:
            ends, moments = read_runs(path)
            report_ends(ends)
            report_moments(moments)
        case ["weights", path]:
            write_weights(*read_runs(path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
