#!/usr/bin/env python3
"""Runs programs that were not used to develop ebb, and prints ebb's results beside the truth.

Exits with 1 if a program fails, or a result is worse than in the table of expected results (expected.json). A wrong
result that this table expects is reported as a known defect.
"""

import argparse
import json
import os
import re
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = HERE.parent
sys.path.insert(0, str(ZOO))  # inserted before this folder, so that `import run` finds zoo/run.py
import command
import place
import run as zoo
import table
from place import BUILD, EBB, interpreter

KEPT = HERE / "expected.json"
RANK = ["WRONG", "unsure", "near", "right"]
LEAKS = ("leaking", "stepping")
MODES = ("marks", "nomarks")
LOOKS = 8  # number of verdicts requested per epoch
TIMEOUT_S = 400
SETTLED = 0.15  # growth rates are measured after the first 15 % of the leaking steps
CLOSE = 0.2
KEYS = 4  # number of columns that identify a run
COLUMNS = ["program", "variant", "set", "mode", "leak", "word", "grade", "sure", "rate error",
           "of live", "right after", "alarms", "culprit row", "first hypothesis", "right"]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILD / "zoo-unseen",
                        help="folder of the recordings (default zoo-unseen of the build)")
    parser.add_argument("--jobs", type=command.count, default=1, help="programs that run at the same time")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES),
                        help="marks, nomarks or both with a comma between (default)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="sets, programs or PROGRAM-VARIANT")
    parser.add_argument("--judge-only", action="store_true", help="use the recordings in --out")
    parser.add_argument("--tiny", action="store_true",
                        help="only see that they run: few steps, nothing is judged")
    parser.add_argument("--update", action="store_true", help="keep what ebb says as expected.json")
    parser.add_argument("--json", type=Path, help="also write what was found into this file")
    args = parser.parse_args()
    unknown = [mode for mode in args.modes if mode not in MODES]
    if unknown:
        parser.error(f"no mode called {unknown[0]}; there are {' and '.join(MODES)}")
    return args


def runs_of(args):
    """Returns (name of the recording, mode, truth) for each requested run."""
    truths = json.loads((HERE / "truths.json").read_text())
    known = {name for key, truth in truths.items()
             for name in (key, truth["program"], truth["set"])}
    unknown = [name for name in args.only if name not in known]
    if unknown:
        sys.exit(f"unseen: no program called {unknown[0]}; README.md lists them")
    return [(f"{key}-{mode}", mode, truth) for mode in args.modes for key, truth in truths.items()
            if not args.only or {key, truth["program"], truth["set"]} & set(args.only)]


def small(truth):
    """Returns the options for a run with few steps. Programs of set a have other options than those of later sets."""
    return ["--seconds", "3", "--scale", "0.1"] if truth["set"] == "a" else ["--tiny"]


def record(name, mode, truth, args):
    """Runs one program; returns its exit status, and ebb's messages."""
    run_dir = args.out / name
    command.clear(run_dir)
    line = [EBB, "run", "--run-dir", str(run_dir), "-q", "--", interpreter(),
               "-W", "ignore", str(HERE / f"{truth['program']}.py"),
               *([truth["flag"]] if truth["flag"] else []), *(small(truth) if args.tiny else [])]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("EBB_", "HELD_"))}
    env.update(OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1")
    if mode == "nomarks":
        env.update(EBB_SHIM="0", HELD_NO_MARKS="1")
    return command.call(line, TIMEOUT_S, env=env, cwd=args.out)


def record_all(runs, args):
    """Makes all recordings. Returns the runs that finished, and a sentence for each that failed."""
    def one(each):
        print(f"unseen: {each[0]}", file=sys.stderr)
        return record(*each, args)

    return zoo.sort_out("unseen", runs, one, args.jobs, lambda each: each[0],
                        lambda each: args.out / each[0])


def recorded(runs, args):
    """Returns the runs that have a recording; prints the number of those that have none."""
    there = [each for each in runs if (args.out / each[0] / "trace.ebb").exists()]
    if not there:
        sys.exit(f"unseen: no recording of them in {args.out}; without --judge-only they are made")
    if len(there) < len(runs):
        print(f"unseen: {len(runs) - len(there)} of {len(runs)} have no recording in {args.out}, and are left out",
              file=sys.stderr)
    return there


def own_count(run_dir):
    """Returns the program's own counts, which are in its last line, or None if it did not finish."""
    try:
        lines = (run_dir / "log.txt").read_text(errors="replace").splitlines()
    except OSError:
        return None
    said = [line.partition(word)[2] for line in lines for word in ("HELD {", "TRUTH ")
            if word in line]
    if not said:
        return None
    return json.loads(said[-1] if said[-1][0] in "[{" else "{" + said[-1])


def own_readings(count, truth):
    """Returns the program's own samples, [(step, resident bytes)]. Set a reports micro-batches and MiB, and each
    program of set e has its own format."""
    if isinstance(count, list):
        return [(row["step"], row["rss"]) for row in count]
    if "step" in count:
        return list(zip(count["step"], count["rss"]))
    rows = count.get("step_live_rss", count.get("rows"))
    if isinstance(rows, list):
        return [(step, rss) for step, _, rss in rows]
    per_step = count["steps"] / total_steps(truth)
    return [(batch / per_step, mib << 20) for batch, _, mib in count["counts"]]


def total_steps(truth):
    return truth["epochs"] * truth["steps_per_epoch"]


def slope(points):
    """Returns the least-squares slope, or None if there are too few points."""
    if len(points) < 2:
        return None
    middle = statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
    spread = sum((x - middle[0]) ** 2 for x, _ in points)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in points) / spread


def true_rate(count, truth):
    """Returns the true growth in bytes per step: the slope of the program's samples, or, if workers grow, the rate
    listed in the truth."""
    if truth.get("grows_in"):
        return truth["bytes_per_step"]
    start = truth.get("leak_from_step", 0)
    start += SETTLED * (total_steps(truth) - start)
    start = max(start, truth.get("fill_until_step", 0))  # the rate is compared only once the cache is full
    grown = slope([point for point in own_readings(count, truth) if point[0] > start])
    return grown if grown and grown > 0 else truth["bytes_per_step"]


def judged_rate(verdict, mode, count, truth):
    """Returns the growth in bytes per step according to ebb; without marks, it is calculated from bytes per minute and
    the program's own pace."""
    if mode == "marks":
        return (verdict.get("rate_bytes_per_step") or {}).get("value")
    rate = (verdict.get("rate_bytes_per_min") or {}).get("value")
    seconds = None if truth["set"] == "e" else count.get("train_s", count.get("seconds"))
    return None if None in (rate, seconds) else rate / 60 * seconds / total_steps(truth)


def grade(word, words, leak):
    """Returns "right", "near" (another word with the same decision), "unsure", or "WRONG" (the opposite decision)."""
    if word in words:
        return "right"
    if word in ("filling", "undecided", "-"):
        return "unsure"
    return "near" if (word in LEAKS) == leak else "WRONG"


def same_function(have, want):
    """Returns whether two names refer to the same function; either may lack the class."""
    # a comprehension is treated as part of the function that contains it
    have = re.sub(r"(\.<locals>\.<(list|set|dict)comp>)+$", "", have or "")
    have, want = have.split("."), want.split(".")
    return have[-1] == want[-1] and (len(have) < 2 or len(want) < 2 or have[-2] == want[-2])


def culprit_row(run_dir, truth):
    """Returns (row, is_line). The row is the number of the first of the top three rows of `ebb heap` that names the
    responsible code, or 0 if none does. is_line is false if the row shows a line of a
    library that the program called, not a line of the program."""
    def is_mine(frame):
        return Path(frame.get("file") or "").name == f"{truth['program']}.py"

    for number, row in enumerate(zoo.ask("heap", run_dir, "--top", "3").get("rows", [])[:3], 1):
        where = row.get("where") or {}
        inner = [frame for frame in row.get("stack") or [] if is_mine(frame)][:1]
        mine = [where] if is_mine(where) else inner
        named = any(same_function(frame.get("function"), culprit)
                    for frame in mine for culprit in truth["culprit"])
        by_library = any(same_function(where.get("function"), f) for f in truth["culprit_lib"])
        if named or by_library:
            return number, is_mine(where)
    return 0, False


def looks_at(run_dir, truth):
    """Returns [(step, verdict word at that step)], for eight steps per epoch."""
    epoch = truth["steps_per_epoch"]
    steps = sorted({max(1, round(epoch * i / LOOKS))
                    for i in range(1, LOOKS * truth["epochs"] + 1)})
    if zoo.judge(run_dir, "--until-step", steps[-1]) is None:
        return []  # the program reports no steps, so there is a single verdict
    return [(step, zoo.word_of(zoo.judge(run_dir, "--until-step", step))) for step in steps]


def timing(looks, truth):
    """Returns how many epochs after the start of the leak the verdict word became right and stayed right to the end,
    and the number of false alarms."""
    start, since = truth.get("leak_from_step", 0), None
    for step, word in reversed(looks):
        if step <= start or word not in truth["words"]:
            break
        since = step
    return {"right_after_epochs": since and round((since - start) / truth["steps_per_epoch"], 3),
            "false_alarms": sum(word in LEAKS for step, word in looks
                                if not truth["leak"] or step <= start)}


def judge(name, mode, truth, args):
    """Returns ebb's results for one recording, and their grades."""
    run_dir = args.out / name
    found = {"run": name, "program": truth["program"], "variant": truth["variant"],
             "set": truth["set"], "mode": mode, "leak": truth["leak"]}
    count = own_count(run_dir)
    # some programs of set e always send marks, so --no-marks makes ebb ignore them
    options = ["--no-marks"] if mode == "nomarks" else []
    answer = zoo.judge(run_dir, *options) if count else None
    if answer is None:
        return {**found, "grade": "-"}
    verdict = zoo.verdicts(answer)[0]
    words = truth["words"] if mode == "marks" else truth["words_no_marks"]
    word = zoo.word_of(answer)
    found.update(word=word, grade=grade(word, words, truth["leak"]),
                 confidence=verdict.get("confidence"),
                 false_processes=[p.get("role") for p in answer.get("processes", [])
                                  if p.get("leak") and not truth["leak"]])
    if truth["leak"]:
        rate = judged_rate(verdict, mode, count, truth)
        found["rate"] = rate
        found["rate_error"] = rate and rate / true_rate(count, truth) - 1
        found["live_rate_error"] = rate and rate / truth["bytes_per_step"] - 1
        found["culprit_row"], found["culprit_itself"] = culprit_row(run_dir, truth)
    ranked = zoo.ask("diagnose", run_dir).get("hypotheses") or [{"key": "-"}]
    found["hypothesis"] = ranked[0]["key"]
    if truth["hypotheses"]:
        found["hypothesis_right"] = ranked[0]["key"] in truth["hypotheses"]
    if mode == "marks":
        found["looks"] = looks_at(run_dir, truth)
        found.update(timing(found["looks"], truth))
        if found["grade"] != "right":  # the last step with a verdict is not always at the end of the run
            found["right_after_epochs"] = None
    return found


def culprit_text(found):
    row = found.get("culprit_row")
    if not row:
        return "-" if row is None else "none"
    return str(row) if found["culprit_itself"] else f"{row}, below"


def row_of(found):
    about = [found["program"], found["variant"], found["set"], found["mode"],
             "yes" if found["leak"] else "no"]
    if found["grade"] == "-":
        return about + ["not judged"] + [""] * (len(COLUMNS) - len(about) - 1)
    after, sure = found.get("right_after_epochs"), found["confidence"]
    return about + [
        found["word"], found["grade"], "-" if sure is None else f"{sure:.0%}",
        zoo.percent(found.get("rate_error")), zoo.percent(found.get("live_rate_error")),
        "-" if after is None else f"{after:.2f} ep.", str(found.get("false_alarms", "-")),
        culprit_text(found), found["hypothesis"],
        {True: "yes", False: "NO"}.get(found.get("hypothesis_right"), "-")]


def grades(results):
    return ", ".join(f"{sum(r['grade'] == word for r in results)} {word}"
                     for word in ("right", "near", "unsure", "WRONG"))


def totals_of(results):
    """Returns sentences that summarize the runs of one mode, one sentence for each value."""
    leaks = [r for r in results if r["leak"]]
    benign = [r for r in results if not r["leak"]]
    errors = [abs(r["rate_error"]) for r in leaks if r["rate_error"] is not None]
    asked = [r for r in results if "hypothesis_right" in r]
    after = [r["right_after_epochs"] for r in results if r.get("right_after_epochs") is not None]
    if leaks:
        yield f"{len(leaks)} leaks: {grades(leaks)}"
    if benign:
        yield f"{len(benign)} benign: {grades(benign)}"
        yield (f"of the benign, called a leak on the way: {sum(bool(r.get('false_alarms')) for r in benign)}, "
               f"with a process called one: {sum(bool(r['false_processes']) for r in benign)}")
    if leaks:
        yield (f"culprit in the first three rows: {sum(r['culprit_row'] > 0 for r in leaks)} "
               f"of {len(leaks)}, "
               f"{sum(r['culprit_itself'] for r in leaks)} by the row's own line")
    if errors:
        yield (f"rate within {CLOSE:.0%}: {sum(e <= CLOSE for e in errors)} of {len(errors)}, "
               f"median error {statistics.median(errors):.0%}")
    if asked:
        yield f"first hypothesis right: {sum(r['hypothesis_right'] for r in asked)} of {len(asked)}"
    if after:
        yield (f"right for good after {statistics.median(after):.2f} epochs (median), "
               f"{max(after):.2f} at most; "
               f"{sum(a <= 1.25 for a in after)} of {len(results)} within 1.25")


def print_totals(results):
    """Prints a summary for each mode: of every set, and of all sets together."""
    judged = [r for r in results if r["grade"] != "-"]
    sets = sorted({r["set"] for r in judged})
    for mode in MODES:
        for name in sets + (["all"] if len(sets) > 1 else []):
            chosen = [r for r in judged if r["mode"] == mode and name in (r["set"], "all")]
            if chosen:
                print(f"\n{mode}, {'all sets' if name == 'all' else 'set ' + name}:")
                print("\n".join(f"  {sentence}" for sentence in totals_of(chosen)))


def to_keep(found):
    """Returns the row of a run in the table of expected results."""
    return {key: found[key] for key in ("word", "grade", "culprit_row", "hypothesis_right") if key in found}


def defects(results, kept):
    """Returns a sentence for each result worse than expected, and one for each result that is expected to be wrong."""
    worse, known = [], []
    for found in results:
        name, before = found["run"], kept.get(found["run"], {"grade": "unsure"})
        if found["grade"] == "-":
            worse.append(f"{name} did not come to its end")
        elif RANK.index(found["grade"]) < RANK.index(before["grade"]):
            worse.append(f"{name}: {before.get('word', 'not in the kept table')} before, "
                         f"now {found['word']} ({found['grade']})")
        elif found["grade"] == "WRONG":
            known.append(f"{name}: {found['word']} is wrong")
        if before.get("culprit_row") and found.get("culprit_row") == 0:
            worse.append(f"{name}: the true call site was in row {before['culprit_row']}, now in none")
        if before.get("hypothesis_right") and found.get("hypothesis_right") is False:
            worse.append(f"{name}: the first hypothesis was right, now it is {found['hypothesis']}")
    return worse, known


def compare(results, args):
    """Prints regressions and known defects; returns the exit status."""
    if args.update:
        table.keep({found["run"]: to_keep(found) for found in results if found["grade"] != "-"}, KEPT)
    worse, known = defects(results, table.read(KEPT))
    for sentence in known:
        print(f"unseen: KNOWN DEFECT: {sentence}", file=sys.stderr)
    for sentence in worse:
        print(f"unseen: WORSE: {sentence}", file=sys.stderr)
    print(f"unseen: {len(worse)} worse than in the kept table, {len(known)} known to be wrong", file=sys.stderr)
    return 1 if worse else 0


def main():
    args = options()
    args.out = args.out.resolve()
    asked = runs = runs_of(args)
    place.need_ebb()
    failed = []
    if args.judge_only:
        runs = recorded(runs, args)
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        runs, failed = record_all(runs, args)
    for sentence in failed:
        print(f"unseen: {sentence}", file=sys.stderr)
    if not runs:
        sys.exit(1 if failed else "unseen: nothing of it can run here")
    if args.tiny:
        print(f"{len(runs)} of {len(asked)} came to their end")
        return 0 if len(runs) == len(asked) else 1
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda each: judge(*each, args), runs))
    command.print_table([COLUMNS] + [row_of(found) for found in results], KEYS)
    print_totals(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if compare(results, args) or failed else 0


if __name__ == "__main__":
    command.end_with(main, "unseen")
