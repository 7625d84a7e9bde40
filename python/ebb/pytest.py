"""A pytest plugin that fails tests which leak: `pytest --ebb`.

    @pytest.mark.no_leak
    def test_step(model):             # repeated until ebb has decided
        train_step(model)

    def test_loop(ebb_loop):
        model = make_model()
        for _ in ebb_loop:            # or ebb_loop(steps=200)
            train_step(model)
"""

from __future__ import annotations

import functools
import inspect
import io
import linecache
import logging
import os
import sys
import time
import warnings
from typing import Any, Iterator, Optional

import pytest

from ._growth import MIN_ITERATIONS, Line, Meter, Verdict

# number of iterations before the first check; the next check comes when this number has doubled,
# and so on
_FIRST_CHECK = 64
# minimum number of iterations for reporting a leak; by then, the standard library's caches are full
_LEAK_ITERATIONS = 1024
_MAX_ITERATIONS = 8192
_MAX_CPU_S = 4.0
_MAX_S = 15.0  # maximum seconds of wall time, for code that waits and for busy machines
# growth of this many bytes ends the loop, even before _LEAK_ITERATIONS
_MAX_GROWTH_BYTES = 256 << 20
_LINE_ITERATIONS = 16  # number of iterations during which ebb searches for the growing line
# number of iterations before the search starts, because replacing an older object looks like growth
_SETTLE_ITERATIONS = 2

_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ebb", "ebb: detect tests that leak memory")
    group.addoption("--ebb", action="store_true", help="repeat ebb_loop blocks and tests "
                    "marked no_leak, and fail those that leak (default: run once)")
    group.addoption("--ebb-undecided", choices=("skip", "fail"), default="skip",
                    help="outcome of tests with an undecided verdict (default: skip)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "no_leak(steps=N): with --ebb, repeat the test (N times) and fail if it leaks")


def _bytes_text(count: float) -> str:
    unit = "B"
    for larger in ("KiB", "MiB", "GiB"):
        if count < 1024:
            break
        count, unit = count / 1024, larger
    return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"


class _Captured:
    """Log records, warnings and output that pytest collects. They would grow with every iteration,
    so only those of the newest iteration are kept."""

    def __init__(self, config: pytest.Config) -> None:
        self.logs = [(h, len(h.records), h.stream.tell()) for h in logging.getLogger().handlers
                     if hasattr(h, "records") and isinstance(getattr(h, "stream", None),
                                                             io.StringIO)]
        # catch_warnings(record=True) appends each warning to a list
        shown = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", None)
        self.warnings = (shown, len(shown)) if isinstance(shown, list) else None
        self.manager = config.pluginmanager.getplugin("capturemanager")

    def trim(self) -> None:
        for handler, count, length in self.logs:
            del handler.records[count:]
            handler.stream.seek(length)
            handler.stream.truncate()
        if self.warnings:
            del self.warnings[0][self.warnings[1]:]
        for stream in (sys.stdout, sys.stderr):
            buffer = getattr(stream, "buffer", None)
            if isinstance(buffer, io.BytesIO):
                stream.flush()
                buffer.seek(0)
                buffer.truncate()

    def trim_files(self) -> None:
        """Discards the output that pytest captures in files. Otherwise the files might fill the
        disk."""
        if self.manager is not None and self.manager.is_globally_capturing():
            self.manager.read_global_capture()


def _source(line: Line) -> list[str]:
    name = os.path.relpath(line.filename)
    name = line.filename if name.startswith("..") else name
    text = linecache.getline(line.filename, line.number).strip()
    kept = f"{_bytes_text(line.bytes_per_iteration)}/iteration"
    if line.objects_per_iteration >= 0.5:
        count = round(line.objects_per_iteration)
        kept += f" in {count} Python object{'s' if count > 1 else ''}"
    found = [f"  --> {name}:{line.number}    keeps {kept}"]
    if text:
        found.append(f"   |  {text}")
    if line.inside:
        found.append(f"   |  allocated in {line.inside[0]}:{line.inside[1]}")
    return found


def _leak_text(verdicts: dict[str, Verdict], n: int, line: Optional[Line]) -> str:
    rates = {k: v.bytes_per_iteration for k, v in verdicts.items() if v.word == "leak"}
    host = max(rates.get("python", 0.0), rates.get("native", 0.0))
    parts = [f"+{_bytes_text(host)}/iteration"] if host else []
    if "gpu" in rates:
        parts.append(f"+{_bytes_text(rates['gpu'])}/iteration on the GPU")
    lines = [f"leaking: {', '.join(parts)}, over {n} iterations"]
    if line:
        lines += _source(line)
    if "native" in rates and rates["native"] > 2 * rates.get("python", 0.0):
        lines.append("   = the rest is native memory owned by these objects" if line else
                     "   = the memory is native; to see the call site, run the test under "
                     "`ebb run`")
    return "\n".join(lines)


class Loop:
    """The value of the fixture `ebb_loop`, an iterable. Calling it as ebb_loop(steps=N) sets the
    number of iterations."""

    def __init__(self, item: pytest.Item, enabled: bool, undecided: str):
        self._item = item
        self._enabled = enabled
        self._undecided = undecided
        self._steps: Optional[int] = None
        self.judged = not enabled

    def __call__(self, steps: Optional[int] = None) -> "Loop":
        if steps is not None and (not isinstance(steps, int) or steps < MIN_ITERATIONS):
            pytest.fail(f"ebb: steps={steps!r}: give a number of at least {MIN_ITERATIONS}",
                        pytrace=False)
        self._steps = steps
        return self

    def __iter__(self) -> Iterator[int]:
        if not self._enabled:
            yield 0
            return
        meter = Meter(self._steps or _MAX_ITERATIONS)
        captured = _Captured(self._item.config)
        meter.start()
        try:
            yield from self._until_known(meter, captured)
            verdicts = meter.judge(final=True)
            line = None
            if any(v.word == "leak" for v in verdicts.values()):
                captured.trim_files()
                meter.forget()
                for i in range(-_SETTLE_ITERATIONS, _LINE_ITERATIONS):
                    if i == 0:
                        meter.mark_lines()
                    captured.trim()
                    yield meter.n + _SETTLE_ITERATIONS + i
                line = meter.find_line(_LINE_ITERATIONS)
        finally:
            meter.stop()
        self._finish(verdicts, meter.n, line)

    def _until_known(self, meter: Meter, captured: _Captured) -> Iterator[int]:
        start, start_cpu = time.monotonic(), time.process_time()
        check = _FIRST_CHECK
        while meter.n < meter.capacity:
            captured.trim()
            yield meter.n
            meter.measure()
            if self._steps:
                continue
            if meter.n == check:
                check *= 2
                if self._is_known(meter):
                    break
            if meter.n >= MIN_ITERATIONS and meter.grown_bytes() > _MAX_GROWTH_BYTES:
                break
            if (time.process_time() - start_cpu >= _MAX_CPU_S
                    or time.monotonic() - start >= _MAX_S):
                break

    @staticmethod
    def _is_known(meter: Meter) -> bool:
        words = {v.word for v in meter.judge(final=False).values()}
        return words == {"sound"} or ("leak" in words and meter.n >= _LEAK_ITERATIONS)

    def _finish(self, verdicts: dict[str, Verdict], n: int, line: Optional[Line]) -> None:
        self.judged = True
        words = {v.word for v in verdicts.values()}
        word = next(w for w in ("leak", "undecided", "sound") if w in words)
        self._item.user_properties.append(("ebb", f"{word} after {n} iterations"))
        if word == "leak":
            pytest.fail(_leak_text(verdicts, n, line), pytrace=False)
        if word == "undecided":
            enough = ("memory grows, but not steadily" if n >= MIN_ITERATIONS
                      else f"at least {MIN_ITERATIONS} iterations are required")
            self.leave(f"undecided after {n} iterations: {enough}; allow more steps, for example "
                       f"no_leak(steps={max(4 * n, 256)})")

    def leave(self, reason: str) -> None:
        """Ends the test as undecided."""
        if self._undecided == "fail":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def _loop_of(item: pytest.Item) -> Loop:
    config = item.config
    return Loop(item, config.getoption("--ebb"), config.getoption("--ebb-undecided"))


@pytest.fixture
def ebb_loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    """Repeats a block of code until ebb knows whether it leaks. Without --ebb, the block runs
    once."""
    loop = _loop_of(request.node)
    yield loop
    if not loop.judged and not request.node.stash.get(_failed, False):
        loop.leave("undecided: the loop over ebb_loop ended early")


def _repeated(test: Any, loop: Loop) -> Any:
    if inspect.iscoroutinefunction(test):
        @functools.wraps(test)
        async def repeat_async(*args: Any, **kwargs: Any) -> None:
            for _ in loop:
                await test(*args, **kwargs)
        return repeat_async

    @functools.wraps(test)
    def repeat(*args: Any, **kwargs: Any) -> None:
        for _ in loop:
            test(*args, **kwargs)
    return repeat


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("no_leak")
    if marker is None or not item.config.getoption("--ebb") or not hasattr(item, "obj"):
        yield
        return
    unknown = [*map(repr, marker.args), *(k for k in marker.kwargs if k != "steps")]
    if unknown:
        pytest.fail(f"ebb: no_leak: unknown argument {unknown[0]}; the only argument is steps=N",
                    pytrace=False)
    test = item.obj
    item.obj = _repeated(test, _loop_of(item)(**marker.kwargs))
    yield
    item.obj = test


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = (yield).get_result()
    if report.when == "call" and not report.passed:
        item.stash[_failed] = True
