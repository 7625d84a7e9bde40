"""Fixtures of the tests of the Python package: the package itself, and jobs that run under ebb.

Jobs run with the Python that runs the tests. EBB_NO_VENV is the reason why torch and similar
packages could not be installed for these tests.
"""

import os
import sys

import pytest

from jobs import PACKAGE, run_under_ebb

SKIPPED_WHOLE = pytest.StashKey[bool]()

if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    report = (yield).get_result()
    if report.skipped:
        path, line, reason = report.longrepr
        why = os.environ.get("EBB_NO_VENV")
        report.longrepr = (path, line, f"{reason} ({why})" if why else reason)
        collector.session.config.stash[SKIPPED_WHOLE] = True


def pytest_sessionfinish(session, exitstatus):
    """If a whole suite skips itself, pytest finds no tests and exits with an error."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and SKIPPED_WHOLE in session.config.stash:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture
def run_job(tmp_path):
    """Runs a command under ebb until it exits."""
    count = 0

    def run(*arguments, **more):
        nonlocal count
        count += 1
        return run_under_ebb(tmp_path, f"run-{count}", *arguments, **more)
    return run
