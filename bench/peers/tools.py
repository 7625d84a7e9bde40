"""Defines how each compared tool is started and how its report is parsed."""

import os
import shutil

import reports

HERE = os.path.dirname(os.path.abspath(__file__))
SLOW = ("memray --native", "scalene", "fil", "heaptrack")


class Tool:
    """One way to run a Python program. COMMAND(python, folder, program) is the whole command line. ROWS and VERDICT
    read the rows and the verdict in the tool's report; each is None if the tool has none. WHY is the reason why the
    tool cannot run here. Tools with IS_SLOW start first."""

    def __init__(self, name, command, rows=None, verdict=None, why=None, is_timed=True):
        self.name, self.command, self.rows, self.verdict = name, command, rows, verdict
        self.why, self.is_timed, self.is_slow = why, is_timed, name in SLOW


def memray(name, *flags, why):
    def command(python, folder, program):
        return [python, "-m", "memray", "run", *flags, "-q", "-o", f"{folder}/out.bin", *program]
    return Tool(name, command, reports.memray_rows, why=why)


def helper(script, output):
    """Returns a function that builds the command line of a helper script, which starts the program under the tool."""
    def command(python, folder, program):
        return [python, f"{HERE}/{script}", f"{folder}/{output}", *program]
    return command


def scalene_command(python, folder, program):
    return [python, "-m", "scalene", "run", "-o", f"{folder}/scalene.json", program[0], "---",
            *program[1:]]


def fil_command(python, folder, program):
    return [python, "-m", "filprofiler", "--no-browser", "-o", f"{folder}/fil", "run", *program]


def psrecord_command(python, folder, program):
    return [python, f"{os.path.dirname(python)}/psrecord", " ".join([python, *program]), "--log",
            f"{folder}/log.txt", "--interval", "0.5", "--include-children"]


def ebb_command(options):
    def command(python, folder, program):
        return [options.ebb, "run", "-q", "--interval", "200ms", "--run-dir", f"{folder}/run", "--",
                python, *program]
    return command


def all_tools(options, missing):
    """Returns the tools in the order of the table; the plain run is first."""
    no_memray = missing.get("memray")
    no_gdb = None if shutil.which("gdb") else "it needs gdb, which is not here"
    no_heaptrack = None if shutil.which("heaptrack") else "not installed, and no package of this system"
    return [
        Tool("plain", lambda python, folder, program: [python, *program]),
        Tool("ebb run", ebb_command(options), reports.ebb_rows, reports.ebb_right),
        memray("memray", why=no_memray),
        memray("memray --native", "--native", why=no_memray),
        memray("memray --aggregate", "--aggregate", why=no_memray),
        Tool("memray attach", helper("attach.py", "out.bin"), reports.memray_rows,
             why=no_memray or no_gdb, is_timed=False),
        Tool("heaptrack", lambda python, folder, program: ["heaptrack", "-o", f"{folder}/out", python,
                                                           *program],
             reports.heaptrack_rows, why=no_heaptrack),
        Tool("tracemalloc", helper("traced.py", "lines.json"), reports.tracemalloc_rows),
        Tool("scalene", scalene_command, reports.scalene_rows, reports.scalene_right,
             why=missing.get("scalene")),
        Tool("fil", fil_command, reports.fil_rows, why=missing.get("filprofiler")),
        Tool("psrecord", psrecord_command, why=missing.get("psrecord")),
        Tool("psutil script", helper("rss_watch.py", "said.json"), verdict=reports.script_right,
             why=missing.get("psutil")),
    ]
