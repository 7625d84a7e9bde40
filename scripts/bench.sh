#!/usr/bin/env bash
# Runs the measurements.
#
#   scripts/bench.sh [ARGUMENT…]                           bench/run.py
#   scripts/bench.sh guard|heap|report|serve [ARGUMENT…]   bench/NAME/NAME.py
#   scripts/bench.sh wheels [ARGUMENT…]                    bench/wheels.py
#   scripts/bench.sh python [ARGUMENT…]                    all programs of bench/py; cost.py receives the arguments
#
# The programs of bench/py run with the Python that has torch, all others with the system's Python, which has psutil.
set -eu
cd "$(dirname "$0")/.."
python=/usr/bin/python3
[ -x "$python" ] || python=python3
if [ "${1:-}" = python ]; then
    folder=${EBB_BUILD_DIR:-build}
    python=$folder/venv/bin/python
    if [ ! -x "$python" ]; then
        echo "bench: there is no $python: $(cat "$folder/venv.reason" 2>/dev/null || echo unknown)" >&2
        exit 1
    fi
    shift
    printf 'start.py\n'
    "$python" bench/py/start.py
    printf '\ncost.py\n'
    "$python" bench/py/cost.py "$@"
    for program in calls lazy_images no_leak; do
        printf '\n%s.py\n' "$program"
        "$python" "bench/py/$program.py"
    done
    exit
fi
program=bench/run.py
case ${1:-} in
wheels)
    program=bench/wheels.py
    shift
    ;;
guard | heap | report | serve)
    program=bench/$1/$1.py
    shift
    ;;
esac
exec "$python" "$program" "$@"
