"""Compares ebb's results for one recording with the truth: which heap row shows the responsible code, and when the
verdict becomes right."""

import recording

ROWS = 3  # number of `ebb heap` rows searched for the responsible code
LOOKS = 8  # number of verdicts requested per epoch
LEAK, NO_LEAK = ("leaking", "stepping"), ("stable", "plateaued", "spiking")


def called(word):
    """Returns the decision that a verdict word stands for: "leak", "none" or "open"."""
    return "leak" if word in LEAK else "none" if word in NO_LEAK else "open"


def contradicts(word, truth):
    """Returns True if WORD is wrong for a run of any length: a leak that was called benign, or the reverse."""
    return called(word) == ("none" if truth["leak"] else "leak")


def functions_of(row):
    """Returns (file, function) of each frame that a row of `ebb heap` shows: the allocating line, the innermost line in
    the program's own files, and the callers. A comprehension is treated as part of the function that contains it."""
    frames = [row["where"], row.get("in_program"), *row.get("callers", [])]
    return [(frame.get("file") or "", (frame.get("function") or "").split(".<")[0]) for frame in frames if frame]


def culprit_rows(run_dir, truth, ask):
    """Returns the numbers, counted from 1, of two of the first ROWS rows of `ebb heap`: the first growing row with the
    function that keeps the memory, and the first row with this function or with one that allocates the memory. The
    number of a missing row is 0. Both are None if the program has no responsible code."""
    culprit = truth["culprit"]
    if not culprit:
        return None, None
    rows = ask("heap", run_dir, "--top", str(ROWS)).get("rows", [])
    keeps, makes = 0, 0
    for number, row in reversed(list(enumerate(rows, 1))):
        found = functions_of(row)
        is_kept = any(function == culprit["function"] and file.endswith(culprit["file"])
                      for file, function in found)
        if is_kept and row["growth_bytes"] > 0:
            keeps = number
        if is_kept or {function for _, function in found} & set(culprit.get("made_in", [])):
            makes = number
    return keeps, makes


def right_from(run_dir, truth, word_at):
    """Returns (seconds, epochs) of training after which the verdict word stayed right, or None if the last word was
    wrong. WORD_AT(step) is the word at the end of a step."""
    marks = recording.Recording(run_dir).marks
    ends = {m["step"]: m["t"] for m in marks if m["kind"] == "step"}
    begin = next((m for m in marks if m["kind"] == "begin"), None)
    if not ends or begin is None:
        return None
    epoch = int(begin["steps_per_epoch"])
    found = None
    looks = sorted({max(1, round(epoch * i / LOOKS)) for i in range(1, LOOKS * max(ends) // epoch + 1)})
    for step in reversed([step for step in looks if step in ends]):
        if word_at(step) not in truth["words"]:
            break
        found = step
    return None if found is None else (ends[found] - begin["t"], found / epoch)
