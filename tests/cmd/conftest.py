"""What the command tests share: ebb with all rights and with fewer, and the expected outputs.

EBB_UPDATE_GOLDEN=1 writes tests/expected anew instead of comparing.
"""

import os
import pathlib
import shutil
import signal
import tempfile

import pytest

from commands import NOBODY, ROOT, binary, run_ebb

EXPECTED = ROOT / "tests" / "expected"

# A shell ignores these for what it starts in the background, and a job would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)


@pytest.fixture
def ebb():
    return run_ebb


@pytest.fixture
def open_folder():
    """A folder that every user can enter; pytest's own are private."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ebb_as_nobody(open_folder):
    """Runs ebb without rights: as nobody where the tests run as root, else as whoever runs them."""
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
