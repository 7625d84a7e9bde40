#!/usr/bin/env python3
"""Fits the weights of the verdict's model, and prints its accuracy on sets of programs that the fit has not seen.

    research/fit.py features TOOL RUNS > features.jsonl   one line per process and job, at the end and during the run
    research/fit.py report features.jsonl                 cross-validation that leaves out whole sets
    research/fit.py weights features.jsonl > src/verdict/weights.inc

TOOL is build/bench/features, RUNS a folder of recordings named PROGRAM-VARIANT-MODE as zoo/unseen/run.py makes
them. Labels are in zoo/unseen/truths.json. A recording with marks is used twice, with and without its marks; one
without hooks ("bare") has no marks and no containers. The
probability of a run is the highest of its processes and of the job as a whole. Fitting therefore alternates between
choosing the row with the highest probability of each run and fitting the weights to these rows. There are three sets of
weights: for ends of runs; for moments after a known first epoch, taken every quarter of an epoch; and for moments of runs
without a known epoch, taken every ten seconds.
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
LEAK_FROM, NO_LEAK_UNTIL, RUNNING_LEAK_FROM = 0.75, 0.2, 0.92  # as in src/verdict/settle.c
SHAPE_LEAK_FROM = 0.8  # as in src/judge/judge_model.c: of a running job that leaks by shape
LASTING_LEAK_FROM, LASTING_S = 0.6, 10  # there, too: of a running job without a known epoch
SINGLE_LEAK_FROM, SINGLE_AFTER_S = 0.98, 25
FIRST_EPOCH = 1.15  # as in src/verdict/settle.c: the model is not used before
LEAK_WORDS = ("leaking", "stepping")
SOON_S, SOON_EPOCHS = 60, 1.26
MATERIAL = 0.025  # fraction of the baseline: the stated limit of detection is at least this growth
MOMENTS = ("running", "past_epoch", "over")  # enum model_moment


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
    truths = json.loads(TRUTHS.read_text())

    def one(task):
        run, key, mode = task
        seconds = [str(t) for t in range(2 * EVERY_S, int(seconds_of(run)), EVERY_S)]
        per_epoch, epochs = truths[key]["steps_per_epoch"], truths[key]["epochs"]
        steps = [f"step={round(per_epoch * quarter / 4)}" for quarter in range(5, 4 * epochs)]
        tries = [[run, *steps], [run, *seconds]] if mode == "marks" else [["--no-marks", run, *seconds]]
        for arguments in tries:  # a run that reports no steps has moments by seconds
            done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
        else:
            print(f"fit: {run.name}: {done.stderr.strip()}", file=sys.stderr)
        return f"{key}-{mode}", done.stdout.splitlines()

    tasks = []
    for run in sorted(Path(folder).iterdir()):
        key, _, recorded = run.name.rpartition("-")
        if key in truths and seconds_of(run):
            tasks += [(run, key, mode) for mode in (("marks", "nomarks") if recorded == "marks" else ("bare",))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, lines in pool.map(one, tasks):
            for line in lines:
                print(json.dumps({"run": name, **json.loads(line)}))


def read_runs(path):
    """Returns for each of MOMENTS [{run, set, mode, leak, at, epochs, rows, earlier}], with one row of features per process
    and job. EARLIER has the same rows with call sites as they were a moment before; not a number: not known then."""
    truths = json.loads(TRUTHS.read_text())
    names = [name for name, _ in names_and_signs()]
    groups = collections.OrderedDict()
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        if row["stands"] and not (0 < row["epochs"] < FIRST_EPOCH):
            groups.setdefault((row["run"], row["at"]), []).append(row)
    unknown = dict.fromkeys(names, np.nan)
    found = {moment: [] for moment in MOMENTS}
    for (name, at), rows in groups.items():
        key, _, mode = name.rpartition("-")
        if key not in truths:
            continue
        moment = MOMENTS[max(row["moment"] for row in rows)]
        before = [row.get("earlier", unknown if row["has_sites"] and moment == "running" else row["features"]) for row in rows]
        found[moment].append({
            "run": name, "mode": mode, "set": truths[key]["set"], "leak": truths[key]["leak"], "at": at,
            "late": "leak_from_step" in truths[key], "word": rows[0]["job"], "shape": any(row["shape"] for row in rows),
            "epochs": max(row["epochs"] for row in rows),
            "rows": np.array([[row["features"][n] for n in names] for row in rows]),
            "earlier": np.array([[row[n] for n in names] for row in before])})
    return found


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
    """Returns the highest probability of the run's processes. That of a process is the lower one with its call sites now
    and as they were a moment before, if no epoch is known."""
    odds = run["rows"] / scale @ weights[:-1]
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
    with_marks = {name: name.rpartition("-")[0] + "-marks" for name in found}
    return {name for name in found if found.get(with_marks[name], found[name]) > MATERIAL}


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


def print_called(mode, rule, runs, is_called, everything):
    """Prints how often runs of MODE are called a leak. EVERYTHING has all runs with that mode."""
    called = {}
    for run, is_leak in zip(runs, is_called):
        if run["mode"] == mode and is_leak:
            at = called.setdefault(run["run"], (run["at"], run["epochs"]))
            called[run["run"]] = min(at, (run["at"], run["epochs"]))
    all_sound = {run["run"] for run in everything if run["mode"] == mode and not run["leak"]}
    all_leaks = {run["run"] for run in everything if run["mode"] == mode and run["leak"] and not run["late"]}
    with_epochs = all_leaks & {run["run"] for run in runs if run["epochs"] > 0}
    wrong, known = sorted(all_sound & set(called)), all_leaks & set(called)
    soon = sum(called[r][0] <= SOON_S for r in known)
    print(f"{mode}, {rule}: {len(wrong)} of {len(all_sound)} healthy runs judged leaking at some time; of {len(all_leaks)} "
          f"leaks {soon} by {SOON_S} s, {len(known)} before the end; {' '.join(wrong)}")
    if with_epochs:
        by = {limit: sum(called[r][1] <= limit for r in known & with_epochs) for limit in (SOON_EPOCHS, 1.51, 2.01)}
        print(f"    of {len(with_epochs)} leaks with epochs, by 1.25, 1.5 and 2 epochs: {', '.join(map(str, by.values()))}")


def lasts(runs, p):
    """Returns for each moment whether a leak has been probable at all moments of the last LASTING_S seconds."""
    found = np.zeros(len(runs), bool)
    since = {}
    for i in sorted(range(len(runs)), key=lambda i: runs[i]["at"]):
        if p[i] < LASTING_LEAK_FROM:
            since.pop(runs[i]["run"], None)
        else:
            begun = since.setdefault(runs[i]["run"], runs[i]["at"])
            found[i] = runs[i]["at"] - begun >= LASTING_S - 0.5  # moments are those of samples
    return found


def report_moments(found):
    runs = found["running"] + found["past_epoch"]
    p = np.concatenate([left_out(found["running"]), left_out(found["past_epoch"])])
    is_past = np.array([run["epochs"] > 0 for run in runs])
    is_late = np.array([run["at"] >= SINGLE_AFTER_S for run in runs])
    is_lasting = lasts(runs, p) | (is_late & (p >= SINGLE_LEAK_FROM))
    by_shape = np.array([run["shape"] for run in runs])
    for mode in sorted({run["mode"] for run in runs}):
        for level in (0.8, 0.85, 0.9, RUNNING_LEAK_FROM, 0.95, 0.98):
            print_called(mode, f"threshold {level}", runs, p >= level, found["over"])
        is_sure = p >= RUNNING_LEAK_FROM
        is_called = np.where(is_past, is_sure | (by_shape & (p >= SHAPE_LEAK_FROM)), is_lasting)
        print_called(mode, "with the shape, or lasting", runs, is_called, found["over"])


def write_weights(found):
    counts = ", ".join(f"{len(found[moment])} {moment}" for moment in MOMENTS)
    print(f"/* Written by research/fit.py from {counts} moments; do not edit. */")
    print("static const struct {")
    print("    double bias, weight[MODEL_COUNT];")
    print("} model_weights[MODEL_MOMENTS] = {")
    for moment in MOMENTS:
        scale = scale_of(found[moment])
        weights = fit(found[moment], scale)
        print(f"    [MODEL_{moment.upper()}] = {{{weights[-1]:.5g},")
        print("     {")
        for (feature, _), weight in zip(names_and_signs(), weights[:-1] / scale):
            print(f"         [MODEL_{feature.upper()}] = {weight:.5g},")
        print("     }},")
    print("};")


def main():
    match sys.argv[1:]:
        case ["features", tool, folder]:
            write_features(tool, folder)
        case ["report", path]:
            found = read_runs(path)
            report_ends(found["over"])
            report_moments(found)
        case ["weights", path]:
            write_weights(read_runs(path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
