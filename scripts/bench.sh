#!/usr/bin/env bash
# Runs the measurements with the Python that has the packaged psutil; arguments go to bench/run.py,
# behind a first one of "guard" to bench/guard/guard.py.
set -eu
cd "$(dirname "$0")/.."
python=/usr/bin/python3
[ -x "$python" ] || python=python3
program=bench/run.py
if [ "${1:-}" = guard ]; then
    program=bench/guard/guard.py
    shift
fi
exec "$python" "$program" "$@"
