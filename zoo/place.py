"""Where things lie: the build, ebb, and the Python that the programs run with."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("EBB_BUILD_DIR") or ROOT / "build").absolute()
EBB = os.path.abspath(os.environ.get("EBB_BINARY") or BUILD / "ebb")


def interpreter():
    """ZOO_PYTHON, that of zoo/setup.sh, or this one."""
    venv = BUILD / "zoo-venv" / "bin" / "python"
    return os.environ.get("ZOO_PYTHON") or (str(venv) if venv.exists() else sys.executable)
