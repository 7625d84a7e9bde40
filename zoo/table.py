"""The table of expected results of the zoo: updates, comparison with new results, and the confusion matrix."""

import json
import math
from pathlib import Path

import judged

KEPT = Path(__file__).resolve().parent / "expected.json"
RANK = {"yes": 2, "unsure": 1, "-": 0, "NO": 0}
GRADES = {"marks_right": "with marks", "no_marks_right": "without marks",
          "hypothesis_right": "hypothesis"}


def read(path=KEPT):
    return json.loads(path.read_text()) if path.exists() else {}


def keep(outcomes, path=KEPT):
    """Writes OUTCOMES into the table. Rows of other runs are kept, and also the costs of runs whose cost was not
    measured."""
    kept = read(path)
    for name, found in outcomes.items():
        cost = {key: kept[name][key] for key in ("overhead",) if key in kept.get(name, {})}
        fresh = {key: value for key, value in found.items() if key != "diagnosis"}
        kept[name] = {**fresh, **{key: value for key, value in cost.items() if key not in fresh}}
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    fresh = path.with_name(f"{path.name}.new")  # replaced atomically, so that a full disk cannot destroy the table
    try:
        fresh.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def regressions(outcomes, kept):
    """Returns a sentence for each result that is worse than in the table. A run that is not in the table is reported if
    its result is wrong."""
    worse = []
    for name, now in outcomes.items():
        before = kept.get(name)
        if before is None:
            if now["marks_right"] == "NO":
                worse.append(f"{name} is not in the kept table, and {now['marks']} is wrong")
            continue
        for key, title in GRADES.items():
            if RANK[now[key]] < RANK[before[key]]:
                worse.append(f"{name} {title}: {before[key]} before, {now[key]} now")
        # The line of growth that stops is not compared, because the growth may be too small to be sampled.
        if not before["leak"]:
            continue
        if before["culprit_row"] and not now["culprit_row"]:
            worse.append(f"{name}: the true call site was in row {before['culprit_row']}, now in none")
        if before.get("culprit_itself") and not now.get("culprit_itself"):
            worse.append(f"{name}: no row names the function that keeps the memory")
    return worse


def wilson(hits, total, z=1.96):
    """Returns Wilson's 95 % confidence interval of a proportion."""
    if not total:
        return 0.0, 1.0
    p, zz = hits / total, z * z / total
    middle = (p + zz / 2) / (1 + zz)
    half = z / (1 + zz) * math.sqrt(p * (1 - p) / total + zz / (4 * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits, total):
    low, high = wilson(hits, total)
    return f"{hits}/{total}" + (f" = {hits / total:.0%} ({low:.0%} – {high:.0%})" if total else "")


def matrix(outcomes):
    """Returns the lines of the confusion matrix: the truth against the verdict with and without marks, and how often
    each verdict was right."""
    lines = []
    for title, word, right in (("with marks", "marks", "marks_right"),
                               ("without marks", "no_marks", "no_marks_right")):
        lines.append(f"{title:15} {'called leak':>12} {'called none':>12} {'left open':>12}")
        for leak in (True, False):
            words = [judged.called(o[word]) for o in outcomes.values() if o["leak"] == leak]
            cells = "".join(f"{words.count(call):>13}" for call in ("leak", "none", "open"))
            lines.append(f"{'leaks' if leak else 'does not leak':15}{cells}")
        every = list(outcomes.values())
        leaks = [o for o in every if o["leak"]]
        benign = [o for o in every if not o["leak"]]
        called_leak = [judged.called(o[word]) == "leak" for o in leaks]
        false = [judged.called(o[word]) == "leak" for o in benign]
        lines += [f"  word right      {share(sum(o[right] == 'yes' for o in every), len(every))}",
                  f"  leaks found     {share(sum(called_leak), len(leaks))}",
                  f"  false leaks     {share(sum(false), len(benign))}", ""]
    first = [o["hypothesis_right"] for o in outcomes.values()]
    leaks = [o for o in outcomes.values() if o["leak"]]
    rows, itself = [o["culprit_row"] for o in leaks], [o.get("culprit_itself") for o in leaks]
    lines += [f"first hypothesis right           {share(first.count('yes'), len(first))}",
              f"culprit of a leak in three rows  {share(sum(bool(row) for row in rows), len(rows))}",
              f"  by the function that keeps it  {share(sum(bool(row) for row in itself), len(itself))}"]
    epochs = sorted(o["right_after_epochs"] for o in outcomes.values()
                    if o["leak"] and o["right_after_epochs"] is not None)
    if epochs:
        lines.append(f"epochs until a leak was known    median {epochs[len(epochs) // 2]:.2f}, "
                     f"most {epochs[-1]:.2f}, of {len(epochs)}")
    return lines
