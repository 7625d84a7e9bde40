#!/usr/bin/env bash
# Runs the measurements with the Python that has the packaged psutil; arguments go to bench/run.py,
# behind a first one of "guard" to bench/guard/guard.py, of "heap" to bench/heap/heap.py, of "report" to
# bench/report/report.py, of "serve" to bench/serve/serve.py. A first one of "python" runs what is in
# bench/py, with the Python that has torch; the rest of the arguments goes to bench/py/cost.py.
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
    for program in calls lazy_images; do
        printf '\n%s.py\n' "$program"
        "$python" "bench/py/$program.py"
    done
    exit
fi
program=bench/run.py
case ${1:-} in
guard | heap | report | serve)
    program=bench/$1/$1.py
    shift
    ;;
esac
exec "$python" "$program" "$@"
