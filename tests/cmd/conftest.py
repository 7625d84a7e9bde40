"""Fixtures of the command tests: ebb with and without privileges, and comparison with expected outputs.
EBB_UPDATE_GOLDEN=1 rewrites the files in tests/expected instead of comparing."""

import os
import pathlib
import shutil
import signal
import tempfile

import pytest

from commands import NOBODY, ROOT, binary, run_ebb

EXPECTED = ROOT / "tests" / "expected"

# If a shell starts pytest in the background, pytest ignores these signals, and jobs of the tests would ignore them,
# too.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: the test also runs on a program without sanitizers")


def pytest_collection_modifyitems(config, items):
    """With EBB_PLAIN_ONLY=1, selects only the tests marked plain, or all tests if none is marked."""
    plain = [item for item in items if item.get_closest_marker("plain")]
    if plain and os.environ.get("EBB_PLAIN_ONLY") == "1":
        config.hook.pytest_deselected(items=[item for item in items if item not in plain])
        items[:] = plain


@pytest.fixture
def ebb():
    return run_ebb


@pytest.fixture
def open_folder():
    """Returns a folder that every user can enter; pytest's own temporary folders are private."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ebb_as_nobody(open_folder):
    """Runs ebb without privileges: as nobody if the tests run as root, otherwise as the current user."""
    program = open_folder / "ebb"
    shutil.copy(binary(), program)
    program.chmod(0o755)

    def run(*arguments, **options):
        if os.geteuid() == 0:
            options.update(user=NOBODY, group=NOBODY, extra_groups=[])
        return run_ebb(*arguments, program=str(program), cwd=open_folder, **options)
    return run


@pytest.fixture
def golden():
    """Compares TEXT with tests/expected/NAME."""
    def compare(name, text):
        path = EXPECTED / name
        if os.environ.get("EBB_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"not as in {path}; EBB_UPDATE_GOLDEN=1 accepts it"
    return compare


@pytest.fixture(scope="session")
def promtool():
    build = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build"))
    path = shutil.which("promtool") or build / "prometheus" / "usr" / "bin" / "promtool"
    if not os.access(path, os.X_OK):
        pytest.skip("promtool is not installed (scripts/setup.sh promtool)")
    return str(path)
