"""Finds the `ebb` program."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig
from typing import Iterator


def _places() -> Iterator[pathlib.Path]:
    package = pathlib.Path(__file__).resolve().parent
    checkout = package.parent.parent
    if (checkout / "CMakeLists.txt").is_file():
        yield checkout / "build"
    yield pathlib.Path(sysconfig.get_path("scripts"))
    yield pathlib.Path(sysconfig.get_path("scripts", vars={"base": sys.base_prefix}))
    if package.parent.name in ("site-packages", "dist-packages"):
        yield package.parents[3] / "bin"  # PREFIX/lib/python3.x/site-packages/ebb
    yield package.parent / "bin"  # pip install --target
    yield pathlib.Path(sysconfig.get_path("scripts", "posix_user"))


def find_ebb() -> str:
    """Returns the path of the ebb program: $EBB_BINARY, or else the one installed with this
    package, or else the one in $PATH. Raises FileNotFoundError if there is none."""
    named = os.environ.get("EBB_BINARY")
    if named:
        if os.access(named, os.X_OK):
            return os.path.abspath(named)
        raise FileNotFoundError(f"EBB_BINARY: {named} is not executable")
    looked = []
    for place in _places():
        path = place / "ebb"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        looked.append(str(place))
    found = shutil.which("ebb")
    if found:
        return found
    raise FileNotFoundError(
        f"the ebb program was not found in {', '.join(dict.fromkeys(looked))} or $PATH; "
        "install it with pip, or set EBB_BINARY to its path"
    )
