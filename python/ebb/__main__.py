"""python -m ebb: replaces this process with the ebb program, so that no Python process stays behind
as its parent."""

import os
import sys

from ._binary import find_ebb

try:
    program = find_ebb()
except FileNotFoundError as error:
    sys.exit(f"ebb: {error}")
os.execv(program, [program, *sys.argv[1:]])
