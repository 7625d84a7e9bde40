"""Where things lie: the build, ebb, and the Python that the programs run with."""

import os
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("EBB_BUILD_DIR") or ROOT / "build").absolute()
EBB = os.path.abspath(os.environ.get("EBB_BINARY") or BUILD / "ebb")


def interpreter():
    """ZOO_PYTHON, that of zoo/setup.sh, or this one."""
    venv = BUILD / "zoo-venv" / "bin" / "python"
    return os.environ.get("ZOO_PYTHON") or (str(venv) if venv.exists() else sys.executable)


def need_ebb():
    """Ends the command with a sentence where there is nothing to run."""
    if not os.access(EBB, os.X_OK):
        sys.exit(f"zoo: there is no {EBB}; make builds it, and EBB_BINARY names another one")


def programs(asked):
    """The programs of the zoo by name: those ASKED for, all without any. Ends the command with a sentence
    where one is not known."""
    known = sorted(path.parent.name for path in (ROOT / "zoo").glob("*/truth.json"))
    for name in asked:
        if name not in known:
            sys.exit(textwrap.fill(f"zoo: no program called {name}; there are {', '.join(known)}"))
    return asked or known
