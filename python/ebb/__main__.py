"""python -m ebb: replaces this process with the ebb program, so that ebb does not run as the child
of a Python process."""

import os
import sys

from ._binary import find_ebb

try:
    program = find_ebb()
except FileNotFoundError as error:
    sys.exit(f"ebb: {error}")
os.execv(program, [program, *sys.argv[1:]])
