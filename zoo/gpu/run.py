#!/usr/bin/env python3
"""Records the programs of zoo/gpu under `ebb run` and compares ebb's verdict words and source lines with truths.json.

    zoo/gpu/run.py --out DIR                run all sixteen, eight at a time: two minutes on a GPU
    zoo/gpu/run.py --out DIR --judge-only   judge the recordings in DIR again; needs no GPU
    zoo/gpu/run.py --tiny                   only check that the programs run; needs no GPU

`EBB_BINARY` and `ZOO_PYTHON` select another ebb and Python. The exit status is 1 if fewer than 15 of 16 verdict words
or 7 of 8 lines are right."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EBB = os.environ.get("EBB_BINARY", str(HERE.parent.parent / "build" / "ebb"))
PYTHON = os.environ.get("ZOO_PYTHON", sys.executable)
TRUTHS = json.loads((HERE / "truths.json").read_text())
LIMIT_S, LINES_SHOWN = 150, 3


def program_command(truth, tiny):
    flags = [truth["flag"]] if truth["flag"] else []
    return [PYTHON, str(HERE / (truth["program"] + ".py")), *flags, *(["--tiny"] if tiny else [])]


def record(name, out, tiny):
    """Runs one program under ebb. Returns the reason why it failed, or None."""
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = program_command(TRUTHS[name], tiny)
    if not tiny:
        command = [EBB, "run", "--run-dir", str(folder / "run"), "--", *command]
    with open(folder / "log.txt", "w", encoding="utf-8") as log:
        try:
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S,
                                    check=False).returncode
        except subprocess.TimeoutExpired:
            return f"still running after {LIMIT_S} s"
    return None if status == 0 else f"exit status {status}; see {folder}/log.txt"


def run_folder(name, out):
    folder = out / name / "run"
    return folder if (folder / "trace.ebb").exists() else None


def ebb_json(*arguments):
    done = subprocess.run([EBB, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    try:
        return done.returncode, json.loads(done.stdout), ""
    except ValueError:
        return done.returncode, None, done.stderr.decode(errors="replace").strip()


def names_culprit(row, culprits):
    frames = [row["where"], row["in_program"] or {}, *row.get("callers", [])]
    return any((f.get("function") or "").replace(".<locals>", "") in culprits for f in frames)


def own_count(name, out):
    text = (out / name / "log.txt").read_text(errors="replace") if (out / name / "log.txt").exists() else ""
    found = re.findall(r"^GPU (\{.*\})$", text, re.M)
    return json.loads(found[-1]) if found else {}


def judge(name, out):
    truth, folder = TRUTHS[name], run_folder(name, out)
    if not folder:
        return {"name": name, "error": "no recording"}
    status, verdicts, why = ebb_json("verdict", "--json", str(folder))
    _, heap, heap_why = ebb_json("heap", "--gpu", "--json", "--top", "10", str(folder))
    gpus = (verdicts or {}).get("gpus") or []
    word = gpus[0]["verdict"] if gpus else None
    rows = (heap or {}).get("rows") or []
    at = next((i + 1 for i, row in enumerate(rows) if names_culprit(row, truth["culprit"])), None)
    per_step = gpus[0].get("rate_bytes_per_step") if gpus else None
    return {
        "name": name, "error": why or heap_why or None, "word": word, "right": word in truth["words"],
        "status": status, "status_right": status == (1 if truth["leak"] else 0),
        "confidence": gpus[0].get("confidence") if gpus else None,
        "per_step": per_step["value"] if per_step else None, "own_per_step": own_count(name, out).get("bytes_per_step"),
        "culprit_row": at, "line_right": at is not None and at <= LINES_SHOWN if truth["leak"] else None,
        "rows": [{"growth": r["growth_bytes"], "live": r["live"]["bytes"], "verdict": r["verdict"]["verdict"],
                  "where": r["where"].get("function"), "file": r["where"].get("file"), "line": r["where"].get("line"),
                  "in_program": (r["in_program"] or {}).get("function")} for r in rows[:5]],
        "live": (heap or {}).get("live"), "gpus": (heap or {}).get("gpus"), "cost": (heap or {}).get("cost"),
    }


def mib(value):
    return "–" if value is None else f"{value / 2**20:+.2f}"


def show(results):
    print(f"{'program':24} {'word':11} {'ok':4} {'exit':4} {'MiB/step':>9} {'own':>8} {'line':>5}  first row")
    for r in results:
        if r.get("word") is None:
            print(f"{r['name']:24} {r.get('error')}")
            continue
        row = r["rows"][0] if r["rows"] else {}
        first = f"{pathlib.Path(row.get('file') or '?').name}:{row.get('line')} {row.get('where')}" if row else "–"
        print(f"{r['name']:24} {r['word']:11} {'yes' if r['right'] else 'NO':4} {r['status']:<4} "
              f"{mib(r['per_step']):>9} {mib(r['own_per_step']):>8} {str(r['culprit_row'] or '–'):>5}  {first}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent.parent / "build" / "zoo-gpu")
    parser.add_argument("--only", nargs="*", help="programs, or single runs such as kept_graph-fixed")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = arguments()
    names = [n for n in TRUTHS if not options.only or n in options.only or TRUTHS[n]["program"] in options.only]
    failed = {}
    if not options.judge_only:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for name, why in zip(names, pool.map(lambda n: record(n, options.out, options.tiny), names)):
                if why:
                    failed[name] = why
                    print(f"{name}: {why}", flush=True)
    if options.tiny or options.record_only:
        return 1 if failed else 0
    results = [judge(name, options.out) for name in names]
    for r in results:
        r["failed"] = failed.get(r["name"])
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    words = sum(bool(r.get("right")) for r in results)
    leaks = [r for r in results if TRUTHS[r["name"]]["leak"]]
    lines = sum(bool(r.get("line_right")) for r in leaks)
    print(f"words right: {words} of {len(results)}; lines in the first three rows: {lines} of {len(leaks)}; "
          f"exit status right: {sum(bool(r.get('status_right')) for r in results)} of {len(results)}")
    return 0 if not failed and words >= len(results) * 15 / 16 and lines >= len(leaks) * 7 / 8 else 1


if __name__ == "__main__":
    sys.exit(main())
