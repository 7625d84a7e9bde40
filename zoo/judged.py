"""What ebb said of one recording against the truth: the culprit's row and the time it took."""

import recording

ROWS = 3  # of `ebb heap` in which the culprit is looked for
LOOKS = 8  # verdicts asked for in an epoch
LEAK, NO_LEAK = ("leaking", "stepping"), ("stable", "plateaued", "spiking")


def called(word):
    """leak, none or open: what a word means to who must decide."""
    return "leak" if word in LEAK else "none" if word in NO_LEAK else "open"


def contradicts(word, truth):
    """Whether WORD is wrong however short the run was: a leak called none, or the other way."""
    return called(word) == ("none" if truth["leak"] else "leak")


def functions_of(row):
    """[(file, function)] that a row of `ebb heap` names: the line that allocates, the innermost one of the
    program's own files, and who called that. A comprehension is its function's."""
    frames = [row["where"], row.get("in_program"), *row.get("callers", [])]
    return [(frame.get("file") or "", (frame.get("function") or "").split(".<")[0]) for frame in frames if frame]


def culprit_rows(run_dir, truth, ask):
    """(row that names the function which keeps it, row that names that or one which makes it), of the first
    ROWS of `ebb heap`, from 1 on; 0: none, None: no culprit. A row counts by its function itself only if it
    grows."""
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
    """(seconds, epochs) of training after which the word was right and stayed so; None if it never was.

    WORD_AT(step) is the word that was known when that step had ended."""
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
