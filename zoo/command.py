"""Shared by the zoo's commands: parsing of numeric options, tables that fit the terminal, and termination by Ctrl-C
without leftover processes."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

FAILED = 1
INTERRUPTED = 130
GAP = "  "
LEFT_BY_A_RUN = ("trace.ebb", "run.json", "log.txt")

_running = set()
_is_over = False


def count(text):
    """Parses an option value that must be an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 on")
    return int(text)


def call(command, timeout=None, *, env, **how):
    """Runs COMMAND without a terminal, so that it cannot read typed keys, and returns (status, its stderr). The status
    is "timeout" if COMMAND took too long. COMMAND is killed if this Python program ends, and the folder for its
    temporary files is always removed."""
    with tempfile.TemporaryDirectory(prefix="zoo-", ignore_cleanup_errors=True) as folder:
        return _wait(command, timeout, env={**env, "TMPDIR": folder}, **how)


def _wait(command, timeout, **how):
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, **{**streams, **how})
    _running.add(child)
    if _is_over:
        child.terminate()
    try:
        said = child.communicate(timeout=timeout)[1]
    except subprocess.TimeoutExpired:
        child.terminate()
        child.communicate()
        return "timeout", ""
    finally:
        _running.discard(child)
    return child.returncode, said


def clear(run_dir):
    """Removes RUN_DIR if it contains the files of an earlier run. Any other folder of that name is kept."""
    if not any((run_dir / file).exists() for file in LEFT_BY_A_RUN):
        return
    try:
        shutil.rmtree(run_dir)
    except OSError as error:
        raise OSError(error.errno, f"cannot be removed: {error.strerror}", str(run_dir)) from error


def interrupt(*_):
    """Kills the running children, so that threads waiting for them return. Called by a signal handler."""
    global _is_over
    _is_over = True
    for child in list(_running):
        child.terminate()
    raise KeyboardInterrupt


def end_with(main, name):
    """Exits with the status that MAIN returns. Ctrl-C, a closed pager or a missing requirement prints one line instead
    of a traceback."""
    sys.stdout.reconfigure(errors="replace")  # some encodings lack the dash that the tables use
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{name}: interrupted, and no table is kept", file=sys.stderr)
        status = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards buffered output
        status = FAILED
    except OSError as error:
        print(f"{name}: {f'{error.filename}: ' if error.filename else ''}{error.strerror}", file=sys.stderr)
        status = FAILED
    sys.exit(status)


def columns():
    """Returns the width of the terminal, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def folded(widths, keys, room):
    """Splits the columns into groups that fit into ROOM, each beginning with the first KEYS columns. Returns one group
    if ROOM is None."""
    parts, fixed = [[]], list(range(keys))
    for at in range(keys, len(widths)):
        wanted = fixed + parts[-1] + [at]
        taken = sum(widths[i] for i in wanted) + len(GAP) * (len(wanted) - 1)
        if room is not None and parts[-1] and taken > room:
            parts.append([])
        parts[-1].append(at)
    return [fixed + part for part in parts]


def print_table(rows, keys=1, indent=""):
    """Prints ROWS, the header first. Columns that do not fit the terminal follow in further tables, which repeat the
    first KEYS columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    room = columns()
    for number, part in enumerate(folded(widths, keys, room and room - len(indent))):
        if number:
            print()
        for row in rows:
            print(indent + GAP.join(row[i].ljust(widths[i]) for i in part).rstrip())
