#!/usr/bin/env bash
# Runs the measurements: bench/run.py or bench/run.sh where there is one, else every built program.
set -eu
cd "$(dirname "$0")/.."
build=${EBB_BUILD_DIR:-$PWD/build}

if [ -e bench/run.py ]; then
    python=/usr/bin/python3 # the one that has the packaged psutil
    [ -x "$python" ] || python=python3
    exec "$python" bench/run.py "$@"
fi
if [ -e bench/run.sh ]; then
    exec bash bench/run.sh "$@"
fi
ran=0
for program in "$build"/bench/*; do
    [ -x "$program" ] || continue
    printf '== %s\n' "${program##*/}"
    "$program" "$@"
    ran=1
done
if [ "$ran" -eq 0 ]; then
    echo "bench: no programs under bench/" >&2
    exit 1
fi
