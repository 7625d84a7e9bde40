#!/usr/bin/env bash
# Runs the measurements with the Python that has the packaged psutil; arguments go to bench/run.py.
set -eu
cd "$(dirname "$0")/.."
python=/usr/bin/python3
[ -x "$python" ] || python=python3
exec "$python" bench/run.py "$@"
