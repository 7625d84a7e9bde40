"""Tests the page of `ebb report` in a browser: it renders, zooms, shows the right numbers, and
sends no requests.

Needs node, npm, chromium and a way to fetch playwright-core; if one of them is missing, the tests are skipped for that
reason. EBB_PICTURES=FOLDER keeps pictures of the pages there.
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cmd"))

import browsing  # noqa: E402
from commands import make_recording, run_ebb  # noqa: E402

MIB = 1 << 20
BROWSE_S = 380
HOSTILE = "<img src=x onerror=window.injected=true></script><script>window.injected=true</script>"
STEPS = 600


@pytest.fixture(scope="session")
def browser():
    """Opens a page and returns the output of browse.mjs."""
    folder = browsing.prepare()

    def open_page(page):
        return browsing.browse(["browse.mjs", browsing.chromium(), page,
                                *browsing.pictures(page.stem)], folder, BROWSE_S)
    return open_page


def recording(folder, rate):
    """Creates a run of STEPS steps, one per second, that leaks RATE bytes/step and has a hostile name."""
    folder.mkdir(parents=True)
    rows = [f"{t},7,{100 * MIB + t * rate}\n" for t in range(STEPS + 1)]
    marks = [{"t": 0, "kind": "begin", "steps_per_epoch": 100}]
    for t in range(1, STEPS + 1):
        marks.append({"t": t, "kind": "step", "step": t})
        if t % 100 == 0:
            marks += [{"t": t, "kind": kind, "step": t} for kind in ("eval", "epoch")]
        if t % 150 == 0:
            marks.append({"t": t, "kind": "save", "step": t})
    (folder / "t.csv").write_text("t,pid,rss_bytes\n" + "".join(rows))
    (folder / "m.jsonl").write_text("".join(json.dumps(m) + "\n" for m in marks))
    make_recording(folder / "t.csv", folder / "trace.ebb", folder / "m.jsonl")
    (folder / "run.json").write_text(json.dumps(
        {"name": HOSTILE, "command": [HOSTILE], "host": HOSTILE, "state": "ended",
         "end": {"cause": HOSTILE}}))
    return folder


def has_plots(page):
    return "id=plots" in page.read_text()


@pytest.fixture(scope="session")
def seen(browser, tmp_path_factory):
    page = tmp_path_factory.mktemp("web") / "report.html"
    run = recording(page.parent / "run", MIB)
    assert run_ebb("report", run, "-o", page).returncode == 0
    if not has_plots(page):
        pytest.skip("this ebb was built without npm: its page has no plots")
    return browser(page)


@pytest.fixture(scope="session")
def compared(browser, tmp_path_factory):
    page = tmp_path_factory.mktemp("web") / "compare.html"
    before, after = (recording(page.parent / name, rate) for name, rate in (("a", MIB), ("b", 0)))
    assert run_ebb("report", "--compare", before, after, "-o", page).returncode == 0
    if not has_plots(page):
        pytest.skip("this ebb was built without npm: its page has no plots")
    return browser(page)


@pytest.fixture(scope="session")
def day(browser, tmp_path_factory):
    """Opens the report of a day with eight training processes, four GPUs and every kind of record."""
    run = tmp_path_factory.mktemp("web") / "day"
    tool = browsing.build_folder() / "tests" / "tools" / "day"
    if not tool.exists():
        pytest.skip("there is no tests/tools/day: the build had no cmocka")
    subprocess.run([tool, run], check=True, timeout=BROWSE_S)
    assert run_ebb("report", run).returncode == 0
    if not has_plots(run / "report.html"):
        pytest.skip("this ebb was built without npm: its page has no plots")
    return browser(run / "report.html")


def mib(text):
    number, unit = text.split()
    return float(number) * {"MiB": 1, "GiB": 1024, "KiB": 1 / 1024}[unit]


def seconds(text):
    number, unit = text.split()
    if unit == "s":
        return float(number)
    minutes, rest = number.split(":")
    return int(minutes) * 60 + int(rest)


def test_report_page_has_no_errors_and_sends_no_requests(seen, compared, day):
    for one in (seen, compared, day):
        assert one["messages"] == [] and one["requests"] == []


def test_report_page_runs_no_script_from_the_text_of_a_job(seen):
    assert seen["page"]["h1"] == HOSTILE
    assert not seen["page"]["injected"]
    assert seen["page"]["scripts"] == 2  # One script contains the data, the other the page's code.


def test_plots_of_a_report_show_epochs_evaluations_and_checkpoints(seen):
    assert seen["page"]["plots"][0] == "Memory over time"
    assert seen["page"]["keys"] == ["epoch", "evaluation", "checkpoint"]
    assert {"verdict", "memory", "processes", "machine"} <= set(seen["page"]["sections"])


def test_plot_of_a_report_shows_the_values_of_the_recording(seen):
    first, last = (dict(ends) for ends in seen["whole"])
    assert seconds(first["time"]) <= 2 and abs(seconds(last["time"]) - STEPS) <= 2
    values = [mib(next(v for k, v in ends.items() if k.startswith("7"))) for ends in (first, last)]
    assert abs(values[0] - 100) <= 3 and abs(values[1] - (100 + STEPS)) <= 3


def test_plot_of_a_report_can_be_zoomed_in_and_out(seen):
    start, end = (seconds(dict(ends)["time"]) for ends in seen["zoomed"])
    assert abs(start - STEPS / 4) <= 10 and abs(end - STEPS / 2) <= 10
    assert seen["can_go_back"] and seen["back"] == seen["whole"]


def test_plot_of_a_report_can_be_zoomed_by_keyboard(seen):
    start, end = (seconds(dict(ends)["time"]) for ends in seen["keys"]["closer"])
    assert abs(start - STEPS / 4) <= 10 and abs(end - STEPS * 3 / 4) <= 10
    assert seen["keys"]["back"] == seen["whole"]


def test_report_can_plot_memory_over_steps(seen):
    assert seen["step_plots"][0] == "Memory over steps"
    first, last = (dict(ends) for ends in seen["steps"])
    assert int(first["step"]) <= 3 and int(last["step"]) >= STEPS - 2


def test_report_page_follows_the_dark_colour_scheme(seen, compared):
    for one in (seen, compared):
        assert not one["page"]["wide"]
        assert sum(map(int, re.findall(r"\d+", one["dark"])[:3])) < 200


def test_report_fits_a_phone_screen(seen, compared, day):
    for one in (seen, compared, day):
        narrow = one["narrow"]
        assert (narrow["wide"], narrow["beyond"], narrow["scrolled"]) == (False, [], 0)
        assert narrow["canvas"] and max(narrow["canvas"]) <= 390


def test_report_on_a_phone_screen_shows_all_facts_and_labels(seen, day):
    assert seen["narrow"]["facts"] == seen["page"]["facts"] != {}
    values = [mib(ends[1][1]) for ends in seen["narrow"]["ends"]]
    assert abs(values[0] - 100) <= 5 and abs(values[1] - (100 + STEPS)) <= 5
    cells = dict(seen["narrow"]["cells"])
    assert cells["pid"] == "7" and mib(cells["peak"]) == 100 + STEPS
    # The report lists at most 64 processes, of which the first 12 are shown unfolded.
    pids = [value for name, value in day["narrow"]["cells"] if name == "pid"]
    assert sorted(pids[:2]) == ["4000", "4001"] and len(pids) == 12


def test_printed_report_has_a_white_background_and_all_sections(seen, compared, day):
    for one in (seen, compared, day):
        paper = one["paper"]
        assert (paper["wide"], paper["beyond"]) == (False, [])
        assert sum(paper["text"][:3]) < 200 and sum(paper["back"][:3]) > 700
        assert paper["tools"] == "none"
        for what in ("headline", "facts"):
            assert paper[what] == one["page"][what]
        assert max(paper["canvas"]) <= 720 and min(paper["canvas"]) > 500
    assert day["paper"]["explanations"] > 10 and day["paper"]["folded"] == 0


def test_plots_are_redrawn_for_printing_and_restored_afterwards(seen, day):
    for one in (seen, day):
        assert one["printed"]["pages"] >= 1 and one["printed"]["still"] == ""
        assert one["printed"]["axis"] == one["paper"]["axis"]
    assert day["printed"]["pages"] > 3


def test_comparison_page_draws_two_runs_in_one_plot(compared):
    assert compared["page"]["headline"].startswith("The fix worked")
    first, last = (dict(ends) for ends in compared["whole"])
    assert abs(mib(first["before"]) - mib(first["after"])) <= 3
    assert abs(mib(last["before"]) - (100 + STEPS)) <= 3 and abs(mib(last["after"]) - 100) <= 3


def test_report_of_a_day_shows_all_kinds_of_records(day):
    assert day["page"]["plots"] == [
        "Memory over time", "Memory breakdown of process 4001 python3",
        "GPU memory, 4 × NVIDIA H100 80GB HBM3", "Metrics reported by the job"]
    assert day["page"]["keys"] == ["epoch", "evaluation", "checkpoint", "phase", "restart",
                                   "guard action"]
    assert "main" in day["page"]["flames"]
    last = dict(day["whole"][1])
    assert last["time"] == "1 d 0 h" or last["time"].startswith("23:")
    assert abs(mib(last["4001 python3"]) - (6 * 1024 + 21600 * 200 / 1024)) < 500
