"""Fixtures for the tests of the Python package: the package itself, and jobs that run under ebb.

Jobs use the Python that runs the tests. EBB_NO_VENV contains the reason if torch and similar
packages could not be installed for the tests.
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
    """pytest exits with an error if it finds no tests, for example because a whole suite skips
    itself."""
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
