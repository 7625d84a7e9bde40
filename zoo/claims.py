"""What a diagnosis says against its hypotheses, held against the bytes that a program counted itself.

Every sentence against a hypothesis is of a kind that is listed here: either it claims something of
what the program counts, and is checked, or it is about something else (resident pages of one kind,
processes, settings), and the list says so. A sentence of no kind listed is reported as well."""

import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
NOISE_BYTES, NOISE_SHARE = 4 << 20, 0.025  # of src/diagnose: less is no growth
SLACK_BYTES = 8 << 20  # counts are of step ends, and moments lie between them
SIZE = r"([+-]?[\d.]+ (?:[KMGT]i)?B)"


def size(text):
    """Bytes of "+1.25 MiB"."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


class Counters:
    """What the program counted at the end of each step, between the two moments of a ledger."""

    def __init__(self, marks, counts, ledger):
        steps = [(m["t"], m["step"]) for m in marks if m["kind"] == "step"]
        self.first = min((s for t, s in steps if t >= ledger["start_s"]), default=0)
        self.last = max((s for t, s in steps if t <= ledger["now_s"]), default=0)
        self.counts = {s: b for s, b in sorted(counts.items()) if self.first <= s <= self.last}
        self.events = {m.get("step") for m in marks if m["kind"] in ("eval", "save")}
        self.pass_steps = next((m["steps_per_epoch"] for m in marks if m.get("steps_per_epoch")), 0)
        self.rss_start = ledger["rss_start_bytes"]
        self.rss_growth = ledger["rss_now_bytes"] - ledger["rss_start_bytes"]

    def grown(self, from_step=None):
        """By how much the count rose, at all or since FROM_STEP."""
        values = [b for s, b in self.counts.items() if from_step is None or s >= from_step]
        return values[-1] - values[0] if values else 0

    def floor_grown(self):
        values = list(self.counts.values())
        half = len(values) // 2
        return min(values[half:]) - min(values[:half]) if half else 0

    def at_events(self):
        """What of it came in the step behind an evaluation or a checkpoint."""
        steps = list(self.counts)
        return sum(self.counts[b] - self.counts[a] for a, b in zip(steps, steps[1:])
                   if self.events & set(range(a, b + 1)))

    def kept(self):
        """What of it is no garbage that waits for its collector, nor a batch under way."""
        return min(self.grown(), 2 * self.floor_grown())

    def noise(self):
        return max(NOISE_BYTES, NOISE_SHARE * self.rss_start)

    def is_most_of(self, growth):
        """Does the program hold most of a growth by its own count?"""
        return self.kept() > max(self.noise(), 0.5 * growth)


# ---- what a sentence claims: each returns whether the counters say otherwise ----

def did_not_grow(c, _):
    return c.kept() > c.noise()


def grew_a_little(c, found):
    return c.kept() > size(found[1]) + SLACK_BYTES


def came_after_the_pass(c, found):
    return c.is_most_of(c.rss_growth) and c.grown(c.pass_steps) < 0.1 * size(found[1])


def ended_elsewhere(c, _):
    """Growth that came in the first pass and stopped with it."""
    late = c.pass_steps - c.pass_steps // 10
    return (c.pass_steps > 0 and c.is_most_of(c.rss_growth)
            and c.grown(c.pass_steps + 1) < 0.1 * c.grown() and c.grown(late) > 0.02 * c.grown())


def events_have_little(c, found):
    """Said against memory that stays after them: they have most of what the program counts."""
    return c.is_most_of(c.rss_growth) and c.at_events() > 0.5 * c.grown()


def no_rise_at_events(c, _):
    return c.at_events() > max(SLACK_BYTES, 0.05 * c.rss_start) * max(1, len(c.events))


def is_let_go(c, found):
    return c.floor_grown() > 0.3 * size(found[2]) + SLACK_BYTES


def no_site_keeps(c, _):
    return c.is_most_of(c.rss_growth)


def site_is_small_part(c, found):
    return c.is_most_of(size(found[1])) and c.grown() > 2 * size(found[1])


def live_heap_changed(c, found):
    """More, or less, than the program itself holds."""
    changed, error, growth = (size(found[i] or "0 B") for i in (1, 2, 3))
    slack = SLACK_BYTES + 0.3 * growth
    return not changed - error - slack <= c.grown() <= changed + error + slack


def lives_as_memory_grew(c, _):
    return c.grown() < 0.3 * c.rss_growth - SLACK_BYTES


# ---- the kinds of sentences; None: about nothing that a program counts ----

KINDS = [(re.compile(pattern), check) for pattern, check in [
    (r"memory did not grow$", did_not_grow),
    (f"memory grew by {SIZE} and has stopped", grew_a_little),
    (f"{SIZE} came after the first pass over the data had ended", came_after_the_pass),
    (r"growth ended.*, and the first pass over the data elsewhere", ended_elsewhere),
    (f"evaluations and checkpoints, one step each, have {SIZE}", events_have_little),
    (r"no rise of note at \d+ evaluations", no_rise_at_events),
    (f"what is made is let go: .* changed by {SIZE} .* that of memory by {SIZE}", is_let_go),
    (r"no call site holds more and more", no_site_keeps),
    (f"that is a small part of the growth of {SIZE}", site_is_small_part),
    (f"the live heap changed by {SIZE}(?: \\(± {SIZE}\\))? while memory grew by {SIZE}",
     live_heap_changed),
    (r"what lives on the heap grew as memory did", lives_as_memory_grew),
    # resident memory, by kind and moment
    (f"memory grew by {SIZE}, from", None),
    (r"memory went on growing after", None),
    (r"it grew little by little", None),
    (r"it came at once, and not again", None),
    (r"of the growth of .* is free$", None),
    (r"only .* came with its start", None),
    (r"in the first half of the pass, .* in the second", None),
    (r"memory at the ends of steps itself grew", None),
    (r"within a step memory rises and falls", None),
    (r"evaluations and checkpoints had a spike", None),
    (r"a spike that recovers does not raise the floor", None),
    (r"(mapped file pages|shared memory|pinned memory|what was swapped out) changed by", None),
    (r"none of the process was ever swapped out", None),
    (r"GPU memory of the job (changed|grew) by", None),
    (r"of .* more shared memory .* is pinned for a GPU", None),
    (r"memory of the host itself grew by", None),
    (r"the verdict on it is", None),
    # which objects, which library: the program counts bytes alone
    (r"(Python objects|tensors on the host).* while memory grew by", None),
    (r"no graph made the tensors that pile up", None),
    (r"torch is not imported there", None),
    (r"what grows is mapped as shared memory", None),
    (r"what grows on the heap was (not made by torch|made for the compiler)", None),
    (r"what the compiler made or called for holds", None),
    # processes and settings
    (r"was watched itself", None),
    (r"there is no .*worker among", None),
    (r"workers grow themselves", None),
    (r"the growth of .* is not in them", None),
    (r"data-loader workers made .* their own", None),
    (r"RSS of such a worker itself grows", None),
    (r"transparent huge pages are", None),
    (r"more lie in huge pages", None),
]]


def contradicted(doc, counters, true_keys):
    """Sentences: what is said against a hypothesis although the program counted otherwise, what is
    said against the true one so that it is given up, and what nobody has looked at."""
    wrong = []
    for h in doc["hypotheses"]:
        for sentence in h["against"]:
            kind = next(((f, check) for pattern, check in KINDS
                         for f in [pattern.search(sentence)] if f), None)
            if kind is None:
                wrong.append(f"{h['key']}: of no kind that is known: {sentence}")
            elif kind[1] and kind[1](counters, kind[0]):
                wrong.append(f"{h['key']}: counted {counters.grown() / 2**20:+.1f} MiB, "
                             f"but: {sentence}")
    if not any(h["key"] in true_keys and h["word"] not in ("ruled out", "unlikely")
               for h in doc["hypotheses"]):
        wrong.append(f"every true hypothesis is given up: {', '.join(true_keys)}")
    return wrong
