"""Checks the arguments that a diagnosis gives against each hypothesis, using the bytes that the program itself counted.
Every argument must be a sentence of a kind listed in this file; an unknown kind is an error. Only claims about bytes
that the program counts are checked; claims about resident pages of one type, processes or settings are not.
"""

import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
NOISE_BYTES, NOISE_SHARE = 4 << 20, 0.025  # same values as in src/diagnose; smaller changes are not growth
# tolerance: counts are taken at step ends, but the times of a ledger lie between step ends
SLACK_BYTES = 8 << 20
SIZE = r"([+-]?[\d.]+ (?:[KMGT]i)?B)"


def size(text):
    """Converts a size such as "+1.25 MiB" to bytes."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


class Counters:
    """The program's own count of live bytes at the end of each step within the period of a memory ledger."""

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
        """Returns the growth of the count, overall or since FROM_STEP."""
        values = [b for s, b in self.counts.items() if from_step is None or s >= from_step]
        return values[-1] - values[0] if values else 0

    def floor_grown(self):
        values = list(self.counts.values())
        half = len(values) // 2
        return min(values[half:]) - min(values[:half]) if half else 0

    def at_events(self):
        """Returns the growth during steps that follow an evaluation or a checkpoint."""
        steps = list(self.counts)
        return sum(self.counts[b] - self.counts[a] for a, b in zip(steps, steps[1:])
                   if self.events & set(range(a, b + 1)))

    def kept(self):
        """Returns the growth, reduced by uncollected garbage and the current batch."""
        return min(self.grown(), 2 * self.floor_grown())

    def noise(self):
        return max(NOISE_BYTES, NOISE_SHARE * self.rss_start)

    def is_most_of(self, growth):
        """Returns whether, according to the program's own count, most of GROWTH is memory that it keeps alive."""
        return self.kept() > max(self.noise(), 0.5 * growth)


# ---- claims: each function returns True if the counters contradict the claim ----

def did_not_grow(c, _):
    return c.kept() > c.noise()


def grew_a_little(c, found):
    return c.kept() > size(found[1]) + SLACK_BYTES


def came_after_the_pass(c, found):
    return c.is_most_of(c.rss_growth) and c.grown(c.pass_steps) < 0.1 * size(found[1])


def ended_elsewhere(c, _):
    """The claim: growth did not stop at the end of the first epoch. It is wrong if the counted growth stopped there."""
    late = c.pass_steps - c.pass_steps // 10
    return (c.pass_steps > 0 and c.is_most_of(c.rss_growth)
            and c.grown(c.pass_steps + 1) < 0.1 * c.grown() and c.grown(late) > 0.02 * c.grown())


def events_have_little(c, found):
    """The claim is that little memory remains after events; it is wrong if most of the counted growth occurs at
    events."""
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
    """Checks whether the claimed bytes differ from the program's own count."""
    changed, error, growth = (size(found[i] or "0 B") for i in (1, 2, 3))
    slack = SLACK_BYTES + 0.3 * growth
    return not changed - error - slack <= c.grown() <= changed + error + slack


def lives_as_memory_grew(c, _):
    return c.grown() < 0.3 * c.rss_growth - SLACK_BYTES


# ---- kinds of sentences, each with its check; None if nothing that the program counts could contradict the sentence
# ----

KINDS = [(re.compile(pattern), check) for pattern, check in [
    (r"memory did not grow$", did_not_grow),
    (f"memory grew by only {SIZE} and then stopped", grew_a_little),
    (f"{SIZE} of the growth came after the first epoch", came_after_the_pass),
    (r"growth ended.*, (but|not at the end of) the first epoch", ended_elsewhere),
    (f"evaluations and checkpoints account for {SIZE}", events_have_little),
    (r"no significant spike at \d+ evaluations", no_rise_at_events),
    (f"allocations are freed: .* changed by {SIZE}, but that of resident memory by {SIZE}", is_let_go),
    (r"no call site grows", no_site_keeps),
    (f"the growing call site explains only a small part of the growth of {SIZE}", site_is_small_part),
    (f"the live heap changed by {SIZE}(?: \\(± {SIZE}\\))? while memory grew by {SIZE}",
     live_heap_changed),
    (r"the live heap grew along with resident memory", lives_as_memory_grew),
    # sentences about resident memory by type and time, which the program does not count
    (f"memory grew by {SIZE}, from", None),
    (r"memory kept growing after", None),
    (r"memory grew gradually", None),
    (r"memory grew in a single jump, which did not repeat", None),
    (r"of the growth of .* is free memory$", None),
    (r"only .* was allocated at the start", None),
    (r"in the first half of the epoch and by .* in the second", None),
    (r"memory at the end of steps grew", None),
    (r"memory rises and falls by only .* within a step", None),
    (r"evaluations and checkpoints had a spike", None),
    (r"a temporary spike does not raise the baseline$", None),
    (r"(mapped file pages|shared memory|pinned memory|swapped-out memory) changed by", None),
    (r"no memory of the process was ever swapped out", None),
    (r"GPU memory of the job (changed|grew) by", None),
    (r"shared memory grew by .*, of which .* is pinned for a GPU", None),
    (r"host memory grew by", None),
    (r"the verdict is", None),
    # sentences about objects and libraries; the program counts bytes, but not which objects or libraries have them
    (r"(Python objects|host tensors).* while memory grew by", None),
    (r"the growing tensors belong to no autograd graph", None),
    (r"torch is not imported in the growing process", None),
    (r"the growth is shared memory mapped", None),
    (r"torch(?: did not allocate|'s compiler allocated) the growing memory", None),
    (r"memory allocated for the compiler grew by", None),
    # sentences about processes and settings, which the program does not count
    (r"the watched process .* is not a launcher", None),
    (r"there is no .*worker among", None),
    (r"workers grow$", None),
    (r"the growth of .* is not in the workers", None),
    (r"data-loader workers copied", None),
    (r"the worker's RSS grows", None),
    (r"transparent huge pages are", None),
    (r"huge pages outside the live heap grew by", None),
]]


def contradicted(doc, counters, true_keys):
    """Returns a message for each sentence that the counters contradict or whose kind is unknown, and one more if the
    diagnosis rejects every true hypothesis."""
    wrong = []
    for h in doc["hypotheses"]:
        for sentence in h["against"]:
            kind = next(((f, check) for pattern, check in KINDS
                         for f in [pattern.search(sentence)] if f), None)
            if kind is None:
                wrong.append(f"{h['key']}: unknown kind of sentence: {sentence}")
            elif kind[1] and kind[1](counters, kind[0]):
                wrong.append(f"{h['key']}: counted {counters.grown() / 2**20:+.1f} MiB, "
                             f"but: {sentence}")
    if not any(h["key"] in true_keys and h["word"] not in ("ruled out", "unlikely")
               for h in doc["hypotheses"]):
        wrong.append(f"every true hypothesis is rejected: {', '.join(true_keys)}")
    return wrong
