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


def culprit_row(run_dir, truth, ask):
    """1 to 3: the row of `ebb heap` with the function that keeps or makes it; 0: none; None: no culprit."""
    culprit = truth["culprit"]
    if not culprit:
        return None
    names = {culprit["function"], *culprit.get("made_in", [])}
    rows = ask("heap", run_dir, "--top", str(ROWS)).get("rows", [])
    for number, row in enumerate(rows, 1):
        function = row["where"].get("function") or ""
        if function.split(".<")[0] in names:  # a comprehension is its function's
            return number
    return 0


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
