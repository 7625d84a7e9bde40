"""%%ebb: runs a notebook cell, and shows its memory and the verdict on it.

While the cell runs, a thread of the notebook kernel samples the kernel's resident memory and
malloc's live heap. The samples stay in memory until the cell has ended, and are then passed to `ebb
verdict` as a table. While the cell runs, the heap profiler is also attached to the notebook kernel,
and a child process collects the profiler's samples. The profiler and the child process are removed
even if the notebook kernel is killed. Steps are counted if the cell reports them with ebb.step, or
if it runs a training loop.
"""

from __future__ import annotations

import argparse
import html
import json
import linecache
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any, Optional

from . import _attach, _binary, _memory, _tap, _truth

_INTERVAL_S = 0.1
# if there are more samples than this, every second one is dropped and the interval is doubled
_SAMPLES_MAX = 20_000
_LINES = 5
_LINE_BYTES = 1 << 18  # lines with fewer live bytes than this are not shown
# mean number of allocated bytes between two samples; lower than for a job, because a cell is short
_HEAP_BYTES = 1 << 16
_LEAK = 1  # exit status of `ebb verdict` for a leak
_PATIENCE_S = 60
_WIDTH, _HEIGHT = 640, 120
_BLOCKS = "▁▂▃▄▅▆▇█"

Sample = tuple[float, int, Optional[int]]  # time, resident bytes, live heap


def _mib(n: float) -> str:
    return f"{n / (1 << 30):.2f} GiB" if n >= 1 << 30 else f"{n / (1 << 20):.1f} MiB"


class Sampler:
    """Samples this process in a thread: with Sampler() as s: … s.samples"""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.marks: list[dict[str, Any]] = []
        self._interval_s = _INTERVAL_S
        self._start = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ebb-notebook", daemon=True)

    def now(self) -> float:
        return time.monotonic() - self._start

    def sample(self) -> None:
        rss = _memory.rss_bytes()
        if rss is not None:
            self.samples.append((self.now(), rss, _truth.read().get("heap_live_bytes")))
        if len(self.samples) >= _SAMPLES_MAX:
            del self.samples[1:-1:2]
            self._interval_s *= 2

    def _run(self) -> None:
        while not self._end.wait(self._interval_s):
            self.sample()

    def _take_mark(self, text: str, must_arrive: bool) -> None:
        self.marks.append({**_tap.as_dict(text), "t": self.now()})

    def __enter__(self) -> "Sampler":
        self.sample()
        self._tap = _tap.tap_thread(self._take_mark)
        self._tap.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()
        self._tap.__exit__()
        self.sample()


def _judge(rows: list[tuple[float, int]], marks: list[dict[str, Any]]) -> tuple[int, str]:
    """Returns the exit status and the headline of `ebb verdict`."""
    with tempfile.TemporaryDirectory(prefix="ebb-cell-") as folder:
        table, lines = os.path.join(folder, "cell.csv"), os.path.join(folder, "marks.jsonl")
        with open(table, "w") as f:
            f.write("t,rss_bytes\n")
            f.writelines(f"{t:.6f},{n}\n" for t, n in rows)
        with open(lines, "w") as f:
            f.writelines(json.dumps(mark) + "\n" for mark in marks)
        command = [_binary.find_ebb(), "verdict", table] + (["--marks", lines] if marks else [])
        done = subprocess.run(
            command,
            env={**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_S,
        )
    return done.returncode, ((done.stdout or done.stderr).strip() or "no verdict").splitlines()[0]


def judge(samples: list[Sample], marks: list[dict[str, Any]]) -> str:
    """Returns the verdict on resident memory, or on the live heap if only the heap leaks."""
    try:
        status, headline = _judge([(t, rss) for t, rss, _ in samples], marks)
        heap = [(t, n) for t, _, n in samples if n is not None]
        if status != _LEAK and heap:
            status, found = _judge(heap, marks)
            if status == _LEAK:
                return f"live heap {found}"
        return headline
    except (OSError, subprocess.SubprocessError) as error:
        return f"no verdict: {error}"


class Summary:
    """The memory of a cell, shown as text in a terminal, and with a plot in a notebook."""

    def __init__(self, sampler: Sampler, lines: list[str]) -> None:
        self.samples, self.lines = sampler.samples, lines
        self.steps = sum(mark.get("kind") == "step" for mark in sampler.marks)
        self.verdict = judge(sampler.samples, sampler.marks)

    def text(self) -> str:
        (_, first, heap_first), (end, last, heap_last) = self.samples[0], self.samples[-1]
        peak = max(rss for _, rss, _ in self.samples)
        steps = f", {self.steps} steps" if self.steps else ""
        out = [f"ebb  {self.verdict}",
               f"resident   {_mib(first)} → {_mib(last)}, peak {_mib(peak)}; {end:.1f} s{steps}"]
        if heap_first is not None and heap_last is not None:
            out.append(f"live heap  {_mib(heap_first)} → {_mib(heap_last)}, as counted by malloc")
        return "\n".join(out + self.lines)

    def _columns(self, n: int) -> list[int]:
        """Divides the samples into at most N equal parts. Returns the maximum resident memory of
        each."""
        rss = [rss for _, rss, _ in self.samples]
        n = min(n, len(rss))
        return [max(rss[i * len(rss) // n:(i + 1) * len(rss) // n]) for i in range(n)]

    def __repr__(self) -> str:
        columns = self._columns(60)
        low, high = min(columns), max(columns)
        scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0
        line = "".join(_BLOCKS[round((value - low) * scale)] for value in columns)
        return f"{self.text()}\n{line}"

    def svg(self) -> str:
        columns = self._columns(_WIDTH // 2)
        low, high = min(columns), max(columns)
        x, y = _WIDTH / max(1, len(columns) - 1), (_HEIGHT - 4) / max(1, high - low)
        points = " ".join(f"{i * x:.1f},{_HEIGHT - 2 - (value - low) * y:.1f}"
                          for i, value in enumerate(columns))
        title = f"resident memory, {_mib(low)} to {_mib(high)}"
        return (f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
                f'role="img"><title>{title}</title><polyline points="{points}" fill="none" '
                'stroke="#2a78d6" stroke-width="2"/></svg>')

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>{self.svg()}"


# Collects the notebook kernel's heap table until standard input is closed, and then prints the
# table. This shell script survives the death of the notebook kernel. At the end it removes the
# folder $1.
_COLLECTOR = """
"$0" run -q -d "$1/run" --no-shim -- sh -c 'echo "$EBB_SOCKET"; exec cat >/dev/null'
"$0" heap "$1/run" --json --pid "$2"
rm -rf "$1"
"""


class Heap:
    """The source lines whose allocations are still live after a cell. The profiler is attached to
    the notebook kernel while the cell runs."""

    def __init__(self, shell: Any) -> None:
        self.found: list[str] = []
        self._shell = shell
        self._collector: Optional[subprocess.Popen[str]] = None

    def __enter__(self) -> "Heap":
        try:
            self._attach()
        except Exception as error:
            self.found = [f"no lines: {error}"]
        return self

    def _attach(self) -> None:
        program = _binary.find_ebb()
        folder = tempfile.mkdtemp(prefix="ebb-cell-")
        self._collector = collector = subprocess.Popen(
            ["sh", "-c", _COLLECTOR, program, folder, str(os.getpid())],
            env={**os.environ, "NO_COLOR": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # a separate session, because restarting the notebook kernel kills its process group
            start_new_session=True,
        )
        socket = collector.stdout.readline().strip()  # type: ignore[union-attr]
        if not socket:
            raise OSError("`ebb run` failed")
        kind, has_heap, reason = _attach.attach(socket, folder, None, _HEAP_BYTES)
        if not has_heap:
            raise OSError(reason)

    def __exit__(self, *_: Any) -> None:
        _attach.detach()
        collector, self._collector = self._collector, None
        if collector is None:
            return
        try:
            text = collector.communicate(timeout=_PATIENCE_S)[0]
            if not self.found:
                self._read(json.loads(text))
        except (ValueError, KeyError, subprocess.SubprocessError) as error:
            self.found = [f"no lines: {error}"]
        if collector.poll() is None:
            collector.kill()

    def _read(self, heap: dict[str, Any]) -> None:
        sizes: Counter[tuple[str, int]] = Counter()
        for row in heap["rows"]:
            at = row["in_program"]
            if at is not None:
                sizes[at["file"], at["line"]] += row["live"]["bytes"]
        for (file, line), size in sizes.most_common(_LINES):
            if size >= _LINE_BYTES:
                source = linecache.getline(file, line).strip()
                found = f"+{_mib(size)}  {self._name_of(file)}:{line}  {source}"
                self.found.append(found.rstrip())

    def _name_of(self, file: str) -> str:
        """Returns the name of a file, or "cell" for code of a cell, because IPython names a cell's
        file by a hash. The number of the cell is not shown: if a magic runs the cell, IPython
        reports the number of the next cell instead."""
        name = getattr(self._shell.compile, "format_code_name", lambda _: None)(file)
        return "cell" if name else os.path.basename(file)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(message)


def _as_in_notebook(cell: str) -> str:
    """Replaces %%ebb by a comment, so that the lines of the cell keep the numbers shown in the
    notebook; IPython would skip an empty line. A cell that begins with a magic or an indented line
    is not changed, because that line must come first."""
    return cell if cell[:1] in ("", "%", " ", "\t") else f"#\n{cell}"


def run(shell: Any, line: str, cell: Optional[str]) -> None:
    parser = _Parser(prog="%%ebb", add_help=False)
    parser.add_argument("--no-lines", action="store_true")
    try:
        options = parser.parse_args(shlex.split(line))
    except ValueError as error:
        print(f"%%ebb: {error}; usage: %%ebb [--no-lines]", file=sys.stderr)
        return
    heap = Heap(shell)
    with nullcontext() if options.no_lines else heap, Sampler() as sampler:
        shell.run_cell(_as_in_notebook(cell or ""))
    from IPython.display import display

    display(Summary(sampler, heap.found))  # type: ignore[no-untyped-call]


def load(shell: Any) -> None:
    def ebb(line: str, cell: Optional[str] = None) -> None:
        """Run a cell, and show its memory, the verdict on it, and the lines that allocated the
        memory still live after the cell. --no-lines omits these lines."""
        run(shell, line, cell)

    shell.register_magic_function(ebb, magic_kind="cell", magic_name="ebb")


def unload(shell: Any) -> None:
    shell.magics_manager.magics["cell"].pop("ebb", None)
