"""Finds the build folder, ebb, and the Python that runs the programs."""

import os
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("EBB_BUILD_DIR") or ROOT / "build").absolute()
EBB = os.path.abspath(os.environ.get("EBB_BINARY") or BUILD / "ebb")


def interpreter():
    """Returns $ZOO_PYTHON if it is set, otherwise the Python that zoo/setup.sh installed or, if there is none, the
    Python that runs this script."""
    venv = BUILD / "zoo-venv" / "bin" / "python"
    return os.environ.get("ZOO_PYTHON") or (str(venv) if venv.exists() else sys.executable)


def need_ebb():
    """Exits with an error message if ebb has not been built."""
    if not os.access(EBB, os.X_OK):
        sys.exit(f"zoo: there is no {EBB}; make builds it, and EBB_BINARY names another one")


def programs(asked):
    """Returns the programs named in ASKED, or all programs. Exits with an error message if a name is unknown."""
    known = sorted(path.parent.name for path in (ROOT / "zoo").glob("*/truth.json"))
    for name in asked:
        if name not in known:
            sys.exit(textwrap.fill(f"zoo: no program called {name}; there are {', '.join(known)}"))
    return asked or known
