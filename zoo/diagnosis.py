#!/usr/bin/env python3
"""Compares `ebb diagnose` on the zoo's recordings with the truth and the programs' own counters.

    zoo/diagnosis.py                      uses the recordings in build/zoo-runs
    zoo/diagnosis.py --record             makes these recordings first, about a minute each
    zoo/diagnosis.py dict_cache --out DIR

Prints one line for each program, then every contradiction, then the requirements. The exit status is 1 if a
requirement is not met.
"""

import argparse
import sys
from pathlib import Path

ZOO = Path(__file__).resolve().parent
sys.path.insert(0, str(ZOO))
import claims
import command
import place
import recording
import run

RIGHT_BAR = 0.9
NAMED_BAR = 0.95
GROWN_SHARE = 0.1  # minimum growth, relative to the initial RSS, for which shares of the growth are meaningful
COLUMNS = ["program", "variant", "truth", "first hypothesis", "right", "RSS MB", "counted MB",
           "heap MB", "growth named", "sum <= RSS", "contradicted"]


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--out", type=Path, default=place.BUILD / "zoo-runs")
    parser.add_argument("--record", action="store_true", help="record them first")
    parser.add_argument("--size", choices=("small", "default", "large"), default="default")
    parser.add_argument("--seconds", type=float, help="spread the steps over this time")
    return parser.parse_args()


def adds_up(ledger):
    """Returns whether the parts of the ledger add up to RSS at its start and at its end, and no part is negative."""
    entries = ledger["entries"]
    totals = [(sum(e[f"{moment}_bytes"] for e in entries), ledger[f"rss_{moment}_bytes"])
              for moment in ("start", "now")]
    return (all(abs(total - rss) <= len(entries) for total, rss in totals)
            and all(e["start_bytes"] >= 0 and e["now_bytes"] >= 0 for e in entries))


def has_grown(ledger):
    grown = ledger["rss_now_bytes"] - ledger["rss_start_bytes"]
    return grown > GROWN_SHARE * ledger["rss_start_bytes"]


def heap_growth(ledger):
    kinds = ("heap", "heap, other sites", "live heap")
    return sum(e["growth_bytes"] for e in ledger["entries"] if e["kind"] in kinds)


class Judged:
    """The diagnosis of one recording, with the errors found in it."""

    def __init__(self, name, variant, truth, run_dir):
        self.name, self.variant, self.truth = name, variant, truth
        self.doc = run.ask("diagnose", run_dir)
        self.ledger = self.doc.get("ledger")
        self.first = self.doc["hypotheses"][0]["key"] if self.doc else "-"
        self.right = self.first in truth["hypotheses"]
        self.adds_up = bool(self.ledger) and adds_up(self.ledger)
        self.named = self.ledger["named_growth_share"] if self.ledger else None
        self.wrong, self.counted = ["nothing was diagnosed"], None
        if self.doc and self.ledger:
            # if the memory grows in workers, the program's count does not apply to the diagnosed process
            counts = {} if "filled_in" in truth else run.counted(run_dir)
            counters = claims.Counters(recording.Recording(run_dir).marks, counts, self.ledger)
            self.counted = counters.grown()
            self.wrong = claims.contradicted(self.doc, counters, truth["hypotheses"])

    def is_unnamed(self):
        return (self.ledger is not None and has_grown(self.ledger)
                and (self.named is None or self.named < NAMED_BAR))

    def cells(self):
        rss = counted = heap = "-"
        if self.ledger:
            rss = "..".join(str(self.ledger[f"rss_{k}_bytes"] >> 20) for k in ("start", "now"))
            counted = f"{self.counted / 2**20:+.0f}"
            heap = f"{heap_growth(self.ledger) / 2**20:+.0f}"
        named = "-" if self.named is None else f"{self.named:.0%}"
        return [self.name, self.variant, " ".join(self.truth["hypotheses"]), self.first,
                "yes" if self.right else "NO", rss, counted, heap, named, "yes" if self.adds_up else "NO",
                str(len(self.wrong))]


def summary(judged):
    """Returns a list of (line of text, whether its requirement is met)."""
    right = sum(j.right for j in judged)
    grown = [j for j in judged if j.ledger and has_grown(j.ledger)]
    unnamed = [j for j in grown if j.is_unnamed()]
    wrong = sum(len(j.wrong) for j in judged)
    return [
        (f"first hypothesis right: {right} of {len(judged)} (bar: {RIGHT_BAR:.0%})",
         right >= RIGHT_BAR * len(judged)),
        (f"ledger adds up to RSS: {sum(j.adds_up for j in judged)} of {len(judged)} (bar: all)",
         all(j.adds_up for j in judged)),
        (f"{NAMED_BAR:.0%} of the growth named: {len(grown) - len(unnamed)} of the {len(grown)} "
         f"that grew by {GROWN_SHARE:.0%} (bar: all)", not unnamed),
        (f"against, contradicted by the program's own counters: {wrong} (bar: none)", not wrong),
    ]


def main():
    args = options()
    names = place.programs(args.programs)
    place.need_ebb()
    if args.record:
        args.out.mkdir(parents=True, exist_ok=True)
    judged = []
    for name in names:
        for variant, flags, truth in run.variants(name):
            run_dir = args.out / f"{name}-{variant}"
            if args.record:
                print(f"zoo: {name} {variant}", file=sys.stderr)
                trouble = run.why_not(*run.record(name, flags, run_dir, args), run_dir)
                if trouble:
                    print(f"zoo: left out: {trouble}", file=sys.stderr)
                    continue
            if not (run_dir / "trace.ebb").exists():
                sys.exit(f"zoo: there is no recording {run_dir}; --record makes them")
            judged.append(Judged(name, variant, truth, run_dir))
    command.print_table([COLUMNS] + [j.cells() for j in judged], run.KEYS)
    for j in judged:
        for sentence in j.wrong:
            print(f"{j.name} {j.variant}: {sentence}")
    bars = summary(judged)
    for line, is_reached in bars:
        print(f"{'ok    ' if is_reached else 'MISSED'} {line}")
    return 0 if all(is_reached for _, is_reached in bars) else 1


if __name__ == "__main__":
    command.end_with(main, "zoo")
