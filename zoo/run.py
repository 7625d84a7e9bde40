#!/usr/bin/env python3
"""Runs programs of the zoo under ebb, and prints ebb's results beside the truth."""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))
import command
import common
import judged
import overhead
import place
import recording
import table
from place import BUILD, EBB, ROOT, interpreter

# Orders the verdict words by severity. A job whose processes are judged separately gets the most severe word.
GRAVITY = ["leaking", "stepping", "filling", "undecided", "plateaued", "spiking", "stable"]
CENSUS_STEPS = 60
COLUMNS = ["program", "variant", "leak", "with marks", "without", "rate error", "right after", "overhead",
           "culprit", "hypothesis"]
DETAILS = ["program", "variant", "counted B/step", "seen B/step", "judged B/step", "RSS MB", "growth named",
           "first of ebb heap"]
KEYS = 2  # number of columns on the left that identify a run
WHERE_MAX = 40  # maximum width of the first heap row's label in the details
SIGNS = {"yes": "", "unsure": " ?", "NO": " WRONG", "-": ""}
# Eight runs of about ten seconds each for `make test`, of programs whose results do not depend on chance.
QUICK = {"kept_loss_graph": "leak", "c_buffer": "leak", "logger_table": "leak", "plain_numpy": "leak",
         "lazy_images": "plain", "tokenizer_cache": "plain", "hook_cycle": "fixed",
         "file_mapping": "plain"}


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--out", type=Path, default=BUILD / "zoo-runs",
                        help="folder of the recordings (default zoo-runs of the build)")
    parser.add_argument("--size", choices=("small", "default", "large"), default="default")
    parser.add_argument("--seconds", type=float, help="spread the steps over this time")
    parser.add_argument("--judge-only", action="store_true", help="use the recordings in --out")
    parser.add_argument("--tables", type=Path, help="also write small tables into this folder")
    parser.add_argument("--jobs", type=command.count, default=1, help="programs that run at the same time")
    parser.add_argument("--overhead", action="store_true", help="also measure the cost of ebb for each program")
    parser.add_argument("--update", action="store_true", help="write ebb's results to zoo/expected.json")
    parser.add_argument("--matrix", action="store_true",
                        help="only print the confusion matrix of zoo/expected.json")
    parser.add_argument("--details", action="store_true", help="a second table: bytes per step and their call sites")
    parser.add_argument("--quick", action="store_true", help="eight small runs, judged as `make test` does")
    return parser.parse_args()


def variants(name):
    """Returns [(variant, flags, truth)] of one program."""
    truth = json.loads((ZOO / name / "truth.json").read_text())
    twin = truth.pop("twin")
    return [(truth["variant"], [], truth), (twin["variant"], [twin["flag"]], twin)]


def record(name, flags, run_dir, args):
    """Runs one program; returns its exit status, and ebb's messages."""
    command.clear(run_dir)
    line = [EBB, "run", "--run-dir", str(run_dir), "--interval", "200ms", "-q", "--",
            interpreter(), str((ZOO / name / "main.py").relative_to(ROOT)), *flags, "--size", args.size]
    if args.seconds is not None:
        line += ["--seconds", str(args.seconds)]
    env = dict(os.environ, ZOO_COUNTS=str(counts_path(run_dir)), PYTHONDONTWRITEBYTECODE="1",
               EBB_CENSUS_EVERY=str(CENSUS_STEPS))
    return command.call(line, env=env, cwd=ROOT)


def counts_path(run_dir):
    return run_dir.resolve().with_name(run_dir.name + ".counts.jsonl")


def counted(run_dir):
    lines = counts_path(run_dir).read_text().splitlines()
    return {o["step"]: o["live_bytes"] for o in map(json.loads, lines)}


def judge(*arguments):
    """Returns the parsed output of `ebb verdict --json`, or None after printing the error to stderr if the command
    fails."""
    done = subprocess.run([EBB, "verdict", *map(str, arguments), "--json"],
                          capture_output=True, encoding="utf-8")
    if done.returncode not in (0, 1, 3):
        print(f"zoo: ebb verdict {arguments[0]}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def verdicts(answer):
    """Returns a list with the verdict on the process tree or, if there is none, with the verdict on each process."""
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
    """Returns "yes" if the verdict is right, "NO" if it is wrong, or "unsure" if it is undecided."""
    if word in right_words:
        return "yes"
    return {"-": "-", "filling": "unsure", "undecided": "unsure"}.get(word, "NO")


def rate_of(answer):
    for verdict in verdicts(answer):
        if verdict.get("rate_bytes_per_step"):
            return verdict["rate_bytes_per_step"]["value"]
    return None


def ask(verb, run_dir, *flags):
    """Returns the parsed JSON output of an ebb command about a run, or {} if the command fails."""
    done = subprocess.run([EBB, verb, str(run_dir), "--json", *flags], capture_output=True, encoding="utf-8")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def first_row(run_dir):
    """Returns a label for the first row of `ebb heap`. The row shows the line that allocates the growing memory,
    not the code that keeps it alive."""
    rows = ask("heap", run_dir, "--top", "1").get("rows", [])
    where = rows[0]["where"] if rows else {}
    if not where.get("file"):
        return where.get("function") or "-"
    return f"{Path(where['file']).name}:{where['line']} {where['function']}"


def diagnosis_cells(run_dir, truth):
    """Returns the first hypothesis of `ebb diagnose`, whether it is right, the share of the growth
    that the ledger explains, and the label of the first row of `ebb heap`."""
    doc = ask("diagnose", run_dir)
    ranked = doc.get("hypotheses") or [{"key": "-"}]
    first = ranked[0]["key"]
    share = (doc.get("ledger") or {}).get("named_growth_share")
    return [first, "yes" if first in truth["hypotheses"] else "NO",
            "-" if share is None else f"{share:.0%}", first_row(run_dir)]


def number(value):
    return "-" if value is None else f"{value:,.0f}"


def words_with_marks(run_dir):
    def at(step):
        return word_of(judge(run_dir, "--until-step", step))
    return at


def outcome_of(variant, truth, run_dir):
    """Returns ebb's results for one recording, in the form of the table of expected results, and further
    measurements."""
    with_marks, without = judge(run_dir), judge(run_dir, "--no-marks")
    word, bare = word_of(with_marks), word_of(without)
    right_after = judged.right_from(run_dir, truth, words_with_marks(run_dir))
    seen = recording.slope(recording.Recording(run_dir).rss_by_step(truth.get("grows_in")))
    rate = rate_of(with_marks)
    keeps, makes = judged.culprit_rows(run_dir, truth, ask)
    known = truth.get("rss_bytes_per_step", truth["bytes_per_step"])
    return {
        "variant": variant, "leak": truth["leak"], "marks": word,
        "marks_right": grade(word, truth["words"]), "no_marks": bare,
        "no_marks_right": grade(bare, truth.get("words_without_marks", truth["words"])),
        "seen": seen and round(seen), "rate": rate and round(rate),
        "rate_error": round(rate / known - 1, 3) if truth["leak"] and rate else None,
        "right_after_s": right_after and round(right_after[0], 1),
        "right_after_epochs": right_after and round(right_after[1], 2),
        "culprit_row": makes, "culprit_itself": keeps,
    }


def percent(value):
    return "-" if value is None else f"{value:+.0%}"


def overhead_text(shares):
    return f"{shares[1]:+.0%} ({shares[0]:+.0%}..{shares[2]:+.0%})" if shares else "-"


def culprit_text(found):
    row, itself = found["culprit_row"], found["culprit_itself"]
    return "-" if row is None else "none" if not row else str(row) if itself else f"{row}, made"


def signed(text, grade_of_it):
    return text + SIGNS[grade_of_it]


def row_of(name, found):
    after = found["right_after_s"]
    return [name, found["variant"], "yes" if found["leak"] else "no",
            signed(found["marks"], found["marks_right"]), signed(found["no_marks"], found["no_marks_right"]),
            percent(found["rate_error"]),
            "-" if after is None else f"{after:.0f} s, {found['right_after_epochs']:.2f} ep",
            overhead_text(found.get("overhead")), culprit_text(found),
            signed(found["hypothesis"], found["hypothesis_right"])]


def details_of(name, truth, run_dir, found):
    by_step = recording.Recording(run_dir).rss_by_step(truth.get("grows_in"))
    steps = sorted(by_step)
    share, where = found["diagnosis"][2:]
    return [name, found["variant"], number(recording.slope(counted(run_dir))), number(found["seen"]),
            number(found["rate"]),
            f"{by_step[steps[0]] >> 20}..{by_step[steps[-1]] >> 20}" if steps else "-",
            share, where if len(where) <= WHERE_MAX else where[:WHERE_MAX - 1] + "…"]


def runs_of(args):
    """Returns [(name, variant, flags, truth)] for the requested runs."""
    chosen = QUICK if args.quick and not args.programs else place.programs(args.programs)
    return [(name, *variant) for name in chosen for variant in variants(name)
            if not args.quick or QUICK.get(name, variant[0]) == variant[0]]


def record_all(runs, args):
    """Makes all recordings. Returns the runs that could be recorded, and a sentence for each that failed."""
    def one(run):
        name, variant, flags, _ = run
        print(f"zoo: {name} {variant}", file=sys.stderr)
        return record(name, flags, args.out / f"{name}-{variant}", args)

    return sort_out("zoo", runs, one, args.jobs, lambda run: f"{run[0]} {run[1]}",
                    lambda run: args.out / f"{run[0]}-{run[1]}")


def sort_out(who, runs, record_one, jobs, title, folder):
    """Calls RECORD_ONE for each run, JOBS of them in parallel; returns the same as record_all."""
    with ThreadPoolExecutor(jobs) as pool:
        ends = list(pool.map(record_one, runs))
    ran, broken = [], []
    for run, (status, said) in zip(runs, ends):
        trouble = why_not(status, said, folder(run))
        if status == common.NOT_HERE:
            print(f"{who}: {title(run)} cannot run here: {trouble}", file=sys.stderr)
        elif trouble:
            broken.append(f"{title(run)} {trouble}")
        else:
            ran.append(run)
    return ran, broken


def why_not(status, said, run_dir):
    """Returns the reason why a recording must not be judged, or None."""
    complaint = next((line for line in said.splitlines() if line.startswith("ebb: ")
                      and ("cannot write" in line or "cannot be written" in line)), None)
    if status == 0:
        return complaint and f"is not recorded whole: {complaint}"
    last = complaint or (said.strip().splitlines() or ["no output"])[-1]
    log = run_dir / "log.txt"
    where = f" (see {log})" if log.exists() else ""
    return f"{'' if status == common.NOT_HERE else f'ended with status {status}: '}{last}{where}"


def recorded(runs, args):
    """Returns the runs that have a recording, and a sentence for each requested run that has none."""
    there = [run for run in runs if (args.out / f"{run[0]}-{run[1]}" / "trace.ebb").exists()]
    if not there:
        sys.exit(f"zoo: no recording of {'them' if args.programs else 'the zoo'} in {args.out}; "
                 "without --judge-only they are made")
    gone = [run for run in runs if run not in there]
    if gone and not args.programs:
        print(f"zoo: {len(gone)} of {len(runs)} have no recording in {args.out}, and are left out", file=sys.stderr)
        gone = []
    return there, [f"{run[0]} {run[1]} has no recording in {args.out}" for run in gone]


def judge_one(variant, truth, run_dir, args):
    """Returns ebb's results for one run; prints its details if requested."""
    if args.tables:
        args.tables.mkdir(parents=True, exist_ok=True)
        recording.convert(run_dir, args.tables / run_dir.name)
    found = outcome_of(variant, truth, run_dir)
    found["diagnosis"] = diagnosis_cells(run_dir, truth)
    found["hypothesis"], found["hypothesis_right"] = found["diagnosis"][:2]
    return found


def judge_all(runs, args):
    """Returns {run: outcome}. Unreadable recordings are reported and left out."""
    outcomes = {}
    for at, (name, variant, flags, truth) in enumerate(runs, 1):
        run_dir = args.out / f"{name}-{variant}"
        # the cost is measured for only one variant, because the variants differ in just one line
        costs = args.overhead and not flags
        print(f"zoo: judging {name} {variant}{', and what ebb costs it' if costs else ''} "
              f"({at} of {len(runs)})", file=sys.stderr)
        try:
            outcomes[run_dir.name] = judge_one(variant, truth, run_dir, args)
        except recording.Unreadable as why:
            print(f"zoo: {why}", file=sys.stderr)
            continue
        if costs:
            outcomes[run_dir.name]["overhead"] = overhead.of_program(interpreter(), name)
    return outcomes


def unread(runs, outcomes):
    """Returns the RUNS that were judged, and a sentence for each run that was not."""
    lost = [run for run in runs if f"{run[0]}-{run[1]}" not in outcomes]
    return [run for run in runs if run not in lost], [f"{name} {variant} was not judged" for name, variant, *_ in lost]


def look_again(runs, outcomes, args):
    """Records the runs whose results are worse than expected a second time, one after another, because verdicts may
    differ on a busy machine. A run is reported only if its second result is also worse."""
    worse = [run for run in runs
             if complaints([run], {f"{run[0]}-{run[1]}": outcomes[f"{run[0]}-{run[1]}"]}, args)]
    if not worse:
        return []
    print(f"zoo: {len(worse)} worse than before; recorded again, one at a time", file=sys.stderr)
    alone = argparse.Namespace(**{**vars(args), "jobs": 1, "overhead": False})
    ran, broken = record_all(worse, alone)
    for name, found in judge_all(ran, alone).items():
        cost = {key: outcomes[name][key] for key in ("overhead",) if key in outcomes[name]}
        outcomes[name] = {**found, **cost}
    return broken


def print_all(runs, outcomes, args):
    """Prints the table, the details if requested, and how often ebb was right."""
    named = [(name, truth, args.out / f"{name}-{variant}") for name, variant, _, truth in runs]
    command.print_table([COLUMNS] + [row_of(name, outcomes[run_dir.name]) for name, _, run_dir in named], KEYS)
    if args.details:
        print()
        command.print_table([DETAILS] + [details_of(name, truth, run_dir, outcomes[run_dir.name])
                                         for name, truth, run_dir in named], KEYS)
    if len(outcomes) > len(QUICK):
        print("\n" + "\n".join(table.matrix(outcomes)))


def complaints(runs, outcomes, args):
    """Returns the reasons for which `make zoo` fails. For runs of the small size, a result is reported only if it would
    be wrong for a run of any length."""
    if args.size == "default":
        return table.regressions(outcomes, table.read())
    truths = {f"{name}-{variant}": truth for name, variant, _, truth in runs}
    return [f"{name}: {found['marks']} is wrong" for name, found in outcomes.items()
            if judged.contradicts(found["marks"], truths[name])]


def main():
    args = options()
    if args.matrix:
        print("\n".join(table.matrix(table.read())))
        return 0
    if args.quick:
        args.size = "small"
    runs = runs_of(args)
    place.need_ebb()
    if args.judge_only:
        runs, broken = recorded(runs, args)
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        runs, broken = record_all(runs, args)
    if not runs and not broken:
        sys.exit("zoo: none of the programs can run here")
    outcomes = judge_all(runs, args)
    runs, lost = unread(runs, outcomes)
    broken += lost
    if not args.judge_only and not args.update:
        broken += look_again(runs, outcomes, args)
    if runs:
        print_all(runs, outcomes, args)
    if args.update:
        table.keep(outcomes)
    worse = broken + complaints(runs, outcomes, args)
    for sentence in worse or ["no result is worse than in the table of expected results" if args.size == "default" else
                              "no leak is called benign, and no benign run is called a leak"]:
        print(f"zoo: {sentence}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    command.end_with(main, "zoo")
