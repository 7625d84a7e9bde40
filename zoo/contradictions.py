#!/usr/bin/env python3
"""Checks that verdict, diagnosis and heap rows of recorded runs do not contradict each other.

    zoo/contradictions.py EBB RUN...

Prints a line for each contradiction and exits with 1 if there is one.
"""

import json
import subprocess
import sys

# Hypotheses about growth that stops by itself, and about growth that continues.
ENDS = {"workers", "data_load", "first_touch", "accumulation", "eval_spike", "retention", "mapped_files", "thp", "no_growth"}
GOES_ON = {"eval_step", "autograd", "processes"}
HELD = {"nearly certain", "likely"}


def ask(ebb, command, run):
    done = subprocess.run([ebb, command, "--json", run], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else None


def contradictions(verdict, diagnosis, heap):
    """Returns a sentence for each contradiction between the results of one run."""
    job = verdict.get("tree") or verdict
    on_gpu = any(gpu.get("leak") for gpu in verdict.get("gpus", []))
    for h in diagnosis["hypotheses"] if diagnosis else []:
        if h["word"] not in HELD:
            continue
        if job["leak"] is True and h["key"] in ENDS:
            yield f"{job['verdict']}, and \"{h['title']}\" is {h['word']}"
        if job["leak"] is False and not on_gpu and h["key"] in GOES_ON:
            yield f"{job['verdict']}, and \"{h['title']}\" is {h['word']}"
    first = diagnosis["hypotheses"][0] if diagnosis and diagnosis["hypotheses"] else None
    for advice in diagnosis["advice"] if diagnosis else []:
        if job["leak"] is True and advice["because"] in ENDS:
            yield f"{job['verdict']}, and advice because of {advice['because']}"
    if job["leak"] is True and diagnosis and not diagnosis["grew"]:
        yield f"{job['verdict']}, and the diagnosis says that nothing grew"
    if job["leak"] is False and first and first["word"] in HELD and "leaking" in " ".join(first["for"]):
        yield f"{job['verdict']}, and the first explanation names a leaking line: {first['for'][0]}"
    for row in heap["rows"][:3] if heap else []:
        if job["leak"] is False and (row.get("verdict") or {}).get("verdict") in ("leaking", "stepping"):
            yield f"{job['verdict']}, and a row of the heap is {row['verdict']['verdict']}: {row['where']['function']}"


def main():
    ebb, *runs = sys.argv[1:]
    found = 0
    for run in runs:
        verdict = ask(ebb, "verdict", run)
        if not verdict:
            continue
        for sentence in contradictions(verdict, ask(ebb, "diagnose", run), ask(ebb, "heap", run)):
            print(f"{run.rstrip('/').rpartition('/')[2]}: {sentence}")
            found += 1
    print(f"{found} contradictions in {len(runs)} runs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
