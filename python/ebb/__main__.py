"""python -m ebb …: the program takes this process's place, so that no Python stays above it."""

import os
import sys

from ._binary import find_ebb

try:
    program = find_ebb()
except FileNotFoundError as error:
    sys.exit(f"ebb: {error}")
os.execv(program, [program, *sys.argv[1:]])
